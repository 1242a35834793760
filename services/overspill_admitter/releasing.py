"""Releases one admitted workload: on record first, then the Job is unsuspended or the pod's gate removed.

Its quota counts as taken from the decision on, and is given back only when the API server said no. An answer that got
lost leaves it taken until the cluster's copy tells.
"""

from typing import Any, Final

from overspill_admitter.expectations import Expectations
from overspill_admitter.memory import Memory
from overspill_admitter.metrics import AdmitterMetrics
from overspill_admitter.policy import Admit
from overspill_bus.bus import Bus
from overspill_bus.errors import BusUnavailable
from overspill_events.catalog import WorkloadAdmitted, WorkloadRef
from overspill_events.envelope import derived_id
from overspill_events.names import ADMISSION_GATE
from overspill_kube.client import Client
from overspill_kube.effects import Contended, record_event, remove_gate, set_suspend
from overspill_kube.errors import KubeError, KubeUnavailable
from overspill_kube.outcomes import Done, Outcome
from overspill_objects.batch import Job
from overspill_objects.core import Pod
from overspill_objects.meta import ObjectReference
from overspill_runtime.clock import Clock

COMPONENT: Final = "overspill-admitter"
ATTEMPTS: Final = 4
PAUSE_SECONDS: Final = 1.0


class Releaser:
    """Carries out admissions."""

    def __init__(
        self,
        *,
        client: Client,
        bus: Bus,
        memory: Memory,
        expectations: Expectations,
        clock: Clock,
        metrics: AdmitterMetrics,
        log: Any,
    ) -> None:
        self._client, self._bus, self._memory, self._expectations = client, bus, memory, expectations
        self._clock, self._metrics, self._log = clock, metrics, log

    async def release(self, admit: Admit) -> bool:
        """Whether the workload was released. Raises nothing of bus or API server: the next decision sees what is."""
        ref = admit.workload.ref
        self._expectations.begin(ref.uid)
        try:
            await self._put_on_record(admit)
        except BusUnavailable as error:
            # Without its event nothing was released: the quota is free, whether or not the event is there one day.
            self._expectations.failed(ref.uid)
            self._log.warning("not-admitted", workload=ref.name, error=str(error))
            return False
        outcome = await self._let_go(ref)
        if outcome is None:
            self._metrics.failed.inc()
            self._expectations.unanswered(ref.uid, self._clock.monotonic())
            return False
        if isinstance(outcome, Done):
            self._expectations.written(ref.uid, outcome.object.metadata.resource_version)
            await self._released(admit)
            return True
        self._expectations.failed(ref.uid)
        self._metrics.failed.inc()
        message = f"the API server refused the release: {outcome}"
        self._log.warning("release-refused", workload=ref.name, outcome=str(outcome))
        await self._note(admit, reason="ReleaseRefused", message=message, type_="Warning")
        return False

    async def _let_go(self, ref: WorkloadRef) -> Outcome[Job] | Outcome[Pod] | Contended | None:
        """The effect, which is the same however often it is asked for; None when no answer came."""
        for attempt in range(ATTEMPTS):
            if attempt:
                await self._clock.sleep(PAUSE_SECONDS)
            try:
                if ref.kind == "Job":
                    return await set_suspend(self._client, ref, False)
                return await remove_gate(self._client, ref, ADMISSION_GATE)
            except (KubeUnavailable, KubeError) as error:
                self._log.warning("release-unanswered", workload=ref.name, error=str(error))
        return None

    async def _put_on_record(self, admit: Admit) -> None:
        workload = admit.workload
        known = self._memory.known.get(workload.ref.uid)
        inherited = admit.inherited
        waited = (self._clock.now() - workload.created).total_seconds()
        event = WorkloadAdmitted(
            workload=workload.ref,
            cluster_queue=admit.cluster_queue,
            flavor=flavor_names(admit),
            quota=admit.quota,
            home_room=admit.home_room,
            waited_seconds=max(0.0, waited),
            inherited_from=inherited.intent.pod if inherited is not None else None,
        )
        cause = inherited.envelope if inherited is not None else known.queued if known is not None else None
        # Told once for each state in which it waited: after a crash before the release the same is not told again.
        event_id = derived_id(workload.ref.uid, event.spec.type, workload.resource_version)
        published = await self._bus.publish(
            event, caused_by=cause, correlation_id=workload.ref.uid, event_id=event_id, must_ack=True, timeout=10.0
        )
        self._memory.record(event, published.envelope)

    async def _released(self, admit: Admit) -> None:
        workload = admit.workload
        self._metrics.admitted.labels(admit.cluster_queue).inc()
        self._metrics.waited.observe(max(0.0, (self._clock.now() - workload.created).total_seconds()))
        self._log.info("admitted", kind=workload.ref.kind, workload=workload.ref.name, queue=admit.cluster_queue)
        await self._note(admit, reason="Admitted", message=f"Admitted by ClusterQueue {admit.cluster_queue}")

    async def _note(self, admit: Admit, *, reason: str, message: str, type_: Any = "Normal") -> None:
        ref = admit.workload.ref
        version = "batch/v1" if ref.kind == "Job" else "v1"
        about = ObjectReference(api_version=version, kind=ref.kind, namespace=ref.namespace, name=ref.name, uid=ref.uid)
        await record_event(self._client, about, reason=reason, message=message, component=COMPONENT, type=type_)


def flavor_names(admit: Admit) -> str:
    """The flavors given, each once, in the order of their resources."""
    return "+".join(dict.fromkeys(admit.flavors.values()))
