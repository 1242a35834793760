"""The bridge's voice: events in their order with their causes, notes beside Kubernetes objects.

The bus is never on the path that keeps work running: an intent waits for the stream only while the bus is there, and
then not for long. Each pod's events form one chain, each caused by the one before. It must not know why anything is
said.
"""

from overspill_bridge.metrics import BridgeMetrics
from overspill_bus.bus import Bus
from overspill_bus.errors import BusUnavailable
from overspill_events.catalog import Event, PodRef, SpillDeferred
from overspill_events.envelope import Envelope
from overspill_events.reasons import SpillReason
from overspill_kube.client import Client
from overspill_kube.effects import record_event
from overspill_kube.note_limits import NoteLimits
from overspill_objects.core import Pod
from overspill_objects.meta import ObjectReference

ACK_SECONDS = 1.0  # an intent waits this long for the stream; afterwards it is sent when the stream answers
COMPONENT = "overspill-bridge"
# One per pod, with a budget that leaves warnings theirs. A note costs the API server as much as a status: in a wave of
# hundreds many pods go without, so that all run sooner (measured on two full cores: with 0.8 notes per pod Running came
# twice as late as with none). Each pod's annotations name its instance all the same.
INSTANCES_AT_ONCE, INSTANCES_PER_SECOND = 100, 5.0


class Record:
    """Says what happens, and remembers per pod what was said last."""

    def __init__(self, bus: Bus, kube: Client, *, node: str, metrics: BridgeMetrics) -> None:
        self._bus = bus
        self._kube = kube
        self._node = node
        self._metrics = metrics
        self._threads: dict[str, Envelope] = {}
        self._deferred: dict[str, SpillReason] = {}
        self._instances = NoteLimits(burst=INSTANCES_AT_ONCE, per_second=INSTANCES_PER_SECOND)

    def say(self, event: Event) -> None:
        """Something about no pod in particular."""
        self._bus.emit(event)

    def tell(self, event: Event, uid: str) -> None:
        """A result concerning the pod with this UID."""
        self._threads[uid] = self._bus.emit(event, caused_by=self._threads.get(uid), correlation_id=uid)

    def knows(self, uid: str) -> bool:
        """Whether this process has said anything about the pod."""
        return uid in self._threads

    async def intend(self, event: Event, uid: str) -> None:
        """An intent, or a result that nobody could find out later: in the stream before what follows, if it can be."""
        if not self._bus.connected:
            self.tell(event, uid)
            return
        cause = self._threads.get(uid)
        try:
            published = await self._bus.publish(event, caused_by=cause, correlation_id=uid, timeout=ACK_SECONDS)
        except BusUnavailable:
            return  # it stays in the buffer and is sent when the bus is back
        self._threads[uid] = published.envelope

    async def defer(self, pod: Pod, reason: SpillReason, detail: str, *, tried: tuple[str, ...] = ()) -> None:
        """Why a pod has no instance now; said when the reason changes."""
        meta = pod.metadata
        if self._deferred.get(meta.uid) is reason:
            return
        self._deferred[meta.uid] = reason
        self._metrics.deferrals.labels(reason.value).inc()
        ref = PodRef(namespace=meta.namespace, name=meta.name, uid=meta.uid)
        self.tell(SpillDeferred(pod=ref, node=self._node, reason=reason, detail=detail, tried=tried), meta.uid)
        word = "".join(part.capitalize() for part in reason.value.split("-"))
        await self.note(pod, f"SpillDeferred{word}", detail)

    def deferred(self) -> set[str]:
        """UIDs of pods that wait for something to change outside."""
        return set(self._deferred)

    def went_on(self, uid: str) -> None:
        """The pod is no longer deferred."""
        self._deferred.pop(uid, None)

    async def note(self, pod: Pod, reason: str, message: str) -> None:
        """A Warning for whoever describes the pod; losing it loses nothing."""
        await record_event(
            self._kube, _reference(pod), reason=reason, message=message, component=COMPONENT, type="Warning"
        )

    async def note_instance(self, pod: Pod, message: str) -> None:
        """What was rented for it, for whoever describes the pod; losing it loses nothing."""
        await record_event(
            self._kube,
            _reference(pod),
            reason="InstanceCreated",
            message=message,
            component=COMPONENT,
            limits=self._instances,
        )

    def forget(self, uid: str) -> None:
        """Nothing more will be said about this pod."""
        self._threads.pop(uid, None)
        self._deferred.pop(uid, None)


def _reference(pod: Pod) -> ObjectReference:
    meta = pod.metadata
    return ObjectReference(api_version="v1", kind="Pod", namespace=meta.namespace, name=meta.name, uid=meta.uid)
