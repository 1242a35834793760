"""The decider's shell: listens to the stream, looks at the gates, and carries out what the policy decides.

Order of each round, per gate: put missing results on the record, then drift, then the decision, acknowledged by the
stream, then the effect, then its result. Whatever cannot be had (bus, API server) ends the round: the gates stay as
they are.
"""

import asyncio
from datetime import timedelta
from typing import Final, Literal, Never

import msgspec

from overspill_bus import BusUnavailable, Published, Recorded
from overspill_decider.metrics import Metrics
from overspill_decider.numbering import Numbering
from overspill_decider.override import ANNOTATIONS, Malformed, read_override
from overspill_decider.policy import Decision, Gate, active_drifts, decide, event_of, is_news, judge_drift
from overspill_decider.settings import Settings
from overspill_decider.state import DISAGREEMENT, FOLLOWED, STUCK_PODS, State, apply, missing_result, with_result
from overspill_events.catalog import (
    CapacitySampled,
    DriftCleared,
    DriftDetected,
    Event,
    GateClosed,
    GateDecided,
    GateOpened,
    ProviderSampled,
)
from overspill_events.envelope import Envelope, derived_id
from overspill_events.names import NO_SCHEDULE, SWITCH_TAINT, VIRTUAL_LABEL
from overspill_events.reasons import Source, Verdict
from overspill_events.subjects import subject_filter
from overspill_kube.effects import TaintsSet, annotate_node, record_event, set_taints
from overspill_kube.errors import KubeError, KubeUnavailable
from overspill_kube.outcomes import Done
from overspill_kube.resources import NODES
from overspill_objects.core import Node, Taint
from overspill_objects.meta import ObjectReference
from overspill_runtime.settings import Mode
from overspill_service import Context, metrics_of
from overspill_service.pausing import Control

SERVICE: Final = "decider"
LEASE: Final = "overspill-decider"
SWITCH: Final = Taint(key=SWITCH_TAINT, effect=NO_SCHEDULE)
# Of these the newest is needed however old it is; all else is read from the look-back on.
NEWEST: Final = (GateDecided, GateOpened, GateClosed, DriftDetected, DriftCleared, ProviderSampled)


async def body(context: Context[Settings]) -> None:
    """Decide for as long as this process leads."""
    await Decider(context, metrics_of(context.registry, Metrics)).run()


class Decider:
    """One leadership: begins with what the stream has, ends by cancellation."""

    def __init__(self, context: Context[Settings], metrics: Metrics) -> None:
        self._context = context
        self._settings = context.settings
        self._rules = context.settings.rules()
        self._metrics = metrics
        self._state = State()
        self._numbering = Numbering()
        self._sampled_at = context.clock.monotonic()  # when the last sample was heard
        self._caught_up = asyncio.Event()
        self._wake = asyncio.Event()
        self._control = Control(
            context.kube,
            context.clock,
            namespace=context.settings.namespace,
            service=SERVICE,
            on_change=self._wake.set,
        )
        self._complained: dict[str, str] = {}  # UID of a node → what was said about the order on it

    async def run(self) -> None:
        """Never returns. Raises BusClosed when the bus has ended for good."""
        self._context.health.check("control", self._control.problem)
        self._context.health.check("record", lambda: None if self._caught_up.is_set() else "reading the past")
        since = self._context.clock.now() - timedelta(seconds=self._settings.look_back())
        await self._recall()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(
                self._context.bus.follow(
                    self._filters(FOLLOWED), self._hear, since=since, on_caught_up=self._caught_up.set
                )
            )
            tasks.create_task(self._control.run())
            tasks.create_task(self._rounds())

    async def _recall(self) -> None:
        """The newest word on every gate and provider, however old. Waits until the bus is there."""
        while True:
            try:
                async for recorded in self._context.bus.read(self._filters(NEWEST), last_per_subject=True):
                    self._take(recorded, self._numbering.of(recorded.envelope.stream_sequence or 0))
            except BusUnavailable as error:
                self._hold("bus", error)
                await self._context.clock.sleep(self._settings.interval)
            else:
                return

    def _hear(self, recorded: Recorded) -> None:
        self._take(recorded, self._numbering.heard(recorded.envelope.stream_sequence or 0))

    def _take(self, recorded: Recorded, number: int) -> None:
        if self._is_from_the_future(recorded):
            # It would look fresh for as long as that clock is ahead, and hide every true one after it.
            self._metrics.holds.labels("clock").inc()
            self._context.log.warning("ahead-of-time", source=recorded.envelope.source, time=recorded.envelope.time)
            return
        self._apply(recorded.event, recorded.envelope, number)
        if isinstance(recorded.event, CapacitySampled):
            self._wake.set()

    def _is_from_the_future(self, recorded: Recorded) -> bool:
        """Whether its sender's clock was ahead of the stream's by more than a sample may be old."""
        ahead = recorded.envelope.time - recorded.stored_at
        return isinstance(recorded.event, CapacitySampled | ProviderSampled) and ahead > timedelta(
            seconds=self._settings.stale_after
        )

    async def _rounds(self) -> Never:
        await self._caught_up.wait()
        while True:
            self._wake.clear()
            try:
                await self._round()
            except BusUnavailable as error:
                self._hold("bus", error)
            except (KubeUnavailable, KubeError) as error:
                self._hold("cluster", error)
            await self._until_woken()

    async def _until_woken(self) -> None:
        """A new sample, or the interval: a sample that does not come is news, too."""
        try:
            async with asyncio.timeout(self._settings.interval):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _round(self) -> None:
        if (problem := self._control.problem()) is not None:
            self._hold("control", problem)
            return
        # A live list, not a cache: there are few virtual nodes, and our own effect must be seen in the next round.
        listing = await self._context.kube.list(NODES, labels=f"{VIRTUAL_LABEL}=true")
        for node in listing.items:
            if node.metadata.deletion_timestamp is None:
                await self._judge(gate_of(node))

    async def _judge(self, gate: Gate) -> None:
        self._settle(gate)
        now, silence = self._context.clock.now(), self._silence()
        for change in judge_drift(gate, self._state, self._rules, now, silence=silence):
            await self._record(change, caused_by=self._state.sampled)
            self._context.log.warning(
                "drift", node=gate.node, kind=change.kind, raised=isinstance(change, DriftDetected)
            )
        now, silence = self._context.clock.now(), self._silence()
        decision = decide(gate, self._state, self._rules, now, silence=silence, paused=self._control.why_paused())
        self._measure(gate)
        if is_news(gate, decision, self._state) or gate.complaint not in {"", self._complained.get(gate.uid)}:
            event = event_of(gate, decision, self._state, self._rules, now)
            await self._record(event, caused_by=self._state.sampled)
            self._metrics.decisions.labels(str(event.verdict), str(event.reason)).inc()
            self._context.log.info("gate-decided", **_shown(event))
        await self._tidy(gate)
        if (decision.verdict is Verdict.OPEN) != gate.is_open and self._context.mode is Mode.ACT:
            await self._carry_out(gate, decision)

    async def _tidy(self, gate: Gate) -> None:
        """Take an expired order off the node, and tell once about one that is none."""
        override, now = gate.override, self._context.clock.now()
        if override is not None and not override.holds(now) and self._may_act():
            removed = await annotate_node(
                self._context.kube, gate.node, dict.fromkeys(ANNOTATIONS), expect_uid=gate.uid, only_if=gate.order
            )
            self._context.log.info(
                "order-expired", node=gate.node, order=str(override), removed=isinstance(removed, Done)
            )
        if gate.complaint == self._complained.get(gate.uid, ""):
            return
        self._complained[gate.uid] = gate.complaint
        if gate.complaint:
            self._context.log.warning("order-ignored", node=gate.node, problem=gate.complaint)
            await self._note(gate, reason="GateOrderIgnored", message=gate.complaint, type_="Warning")

    def _may_act(self) -> bool:
        return self._context.mode is Mode.ACT and self._control.pause() is None

    async def _carry_out(self, gate: Gate, decision: Decision) -> None:
        """Change the taint of the very node that was judged; what hinders it is tried again in the next round."""
        opens = decision.verdict is Verdict.OPEN
        outcome = await set_taints(
            self._context.kube,
            gate.node,
            add=() if opens else (SWITCH,),
            remove=(SWITCH,) if opens else (),
            expect_uid=gate.uid,
        )
        if not isinstance(outcome, TaintsSet):
            self._context.log.warning("gate-not-changed", node=gate.node, outcome=repr(outcome))
            return
        self._metrics.flips.labels(str(decision.verdict)).inc()
        self._settle(msgspec.structs.replace(gate, is_open=opens))
        await self._note(
            gate,
            reason="GateOpened" if opens else "GateClosed",
            message=f"{decision.reason}: {decision.detail}".rstrip(": "),
        )

    async def _note(
        self, gate: Gate, *, reason: str, message: str, type_: Literal["Normal", "Warning"] = "Normal"
    ) -> None:
        about = ObjectReference(api_version="v1", kind="Node", name=gate.node, uid=gate.uid)
        await record_event(
            self._context.kube, about, reason=reason, message=message, component="overspill-decider", type=type_
        )

    def _settle(self, gate: Gate) -> None:
        """Put on the record what the gate has become, if the record does not have it: after an effect, ours or our
        former self's before a crash, or somebody else's hand.

        Its id derives from the decision, so that saying it twice stores it once.
        """
        missing = missing_result(self._state, gate.node, is_open=gate.is_open)
        if missing is None:
            return
        event, cause = missing
        identity = derived_id(cause.id, event.spec.type, gate.node) if cause is not None else None
        envelope = self._context.bus.emit(event, caused_by=cause, event_id=identity)
        self._state = with_result(self._state, gate.node, is_open=gate.is_open, at=envelope.time)
        self._context.log.info(event.spec.name, node=gate.node, reason=str(event.reason), detail=event.detail)

    async def _record(self, event: Event, *, caused_by: Envelope | None) -> None:
        """On the stream first, then in our state. Raises BusUnavailable: it is in neither, or following brings it."""
        published: Published = await self._context.bus.publish(event, caused_by=caused_by, must_ack=True)
        self._apply(event, published.envelope, self._numbering.of(published.sequence))

    def _apply(self, event: Event | None, envelope: Envelope, number: int) -> None:
        numbered = msgspec.structs.replace(envelope, stream_sequence=number)
        before = self._state.sampled
        self._state = apply(self._state, event, numbered, pool=self._settings.pool, rules=self._rules)
        if self._state.sampled is not before:
            self._sampled_at = self._context.clock.monotonic()

    def _silence(self) -> float:
        """Seconds since the last sample was heard."""
        return self._context.clock.monotonic() - self._sampled_at

    def _measure(self, gate: Gate) -> None:
        self._metrics.gate_open.labels(gate.node).set(gate.is_open)
        active = set(active_drifts(self._state, gate.node))
        for kind in (DISAGREEMENT, STUCK_PODS):
            self._metrics.drift.labels(gate.node, kind).set(kind in active)
        for source, track in ((Source.CLUSTER, self._state.cluster), (Source.QUERY, self._state.query)):
            self._metrics.average.labels(str(source)).set(float("nan") if track.average is None else track.average)

    def _hold(self, what: str, error: object) -> None:
        self._metrics.holds.labels(what).inc()
        self._context.log.warning("gates-stay", what=what, error=str(error))

    def _filters(self, types: tuple[type[Event], ...]) -> list[str]:
        return [subject_filter(one, cluster=self._settings.cluster) for one in types]


def gate_of(node: Node) -> Gate:
    """The gate as the node's taints have it, with the order that its annotations are."""
    annotations = node.metadata.annotations
    order = read_override(annotations)
    closed = any(taint.key == SWITCH_TAINT and taint.effect == NO_SCHEDULE for taint in node.spec.taints)
    return Gate(
        node=node.metadata.name,
        uid=node.metadata.uid,
        is_open=not closed,
        override=None if isinstance(order, Malformed) else order,
        complaint=order.problem if isinstance(order, Malformed) else "",
        order={name: annotations[name] for name in ANNOTATIONS if name in annotations},
    )


def _shown(event: GateDecided) -> dict[str, object]:
    """A decision as a log line: the numbers, without what is absent."""
    return {name: value for name, value in msgspec.to_builtins(event).items() if value not in {None, ""}}
