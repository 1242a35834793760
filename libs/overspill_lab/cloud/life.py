"""The life of one instance as a pure function of time: no timers, so nothing can be missed or run late.

Times are seconds on the cloud's own clock. This module must not know HTTP or money.
"""

from msgspec import Struct

from overspill_providers.protocol import InstanceState

RUN_SECONDS_ENV = "OVERSPILL_LAB_RUN_SECONDS"  # the simulated container exits after this many seconds; absent: never
EXIT_CODE_ENV = "OVERSPILL_LAB_EXIT_CODE"  # with this code; absent: 0


class Timings(Struct, frozen=True, kw_only=True):
    """How long each phase takes, in seconds."""

    queue: float = 0.2
    provision: float = 1.0
    start: float = 0.5
    stop: float = 0.3


class Outcome(Struct, frozen=True, kw_only=True):
    """An end that the provider (not the customer) brought about at `at`; state GONE means that it vanishes."""

    state: InstanceState
    at: float
    exit_code: int | None = None
    message: str = ""


class Life(Struct, kw_only=True):
    """One instance's times: what was planned at its creation and what was done to it since."""

    created_at: float
    timings: Timings
    run_seconds: float | None = None
    exit_code: int = 0
    stop_requested_at: float | None = None
    outcome: Outcome | None = None

    @property
    def _start_at(self) -> float:
        return self.created_at + self.timings.queue + self.timings.provision

    @property
    def _run_at(self) -> float:
        return self._start_at + self.timings.start

    def _own_end(self) -> Outcome | None:
        """The end that comes without the customer's doing, planned or already past."""
        if self.outcome is not None:
            return self.outcome
        if self.run_seconds is None:
            return None
        return Outcome(state=InstanceState.EXITED, at=self._run_at + self.run_seconds, exit_code=self.exit_code)

    def end_by_provider(self, outcome: Outcome) -> None:
        """End it now, unless it has already ended: an end is final."""
        if self.ended_at(outcome.at) is None:
            self.outcome = outcome

    def request_stop(self, now: float) -> None:
        """Terminate; the first request counts."""
        if self.stop_requested_at is None:
            self.stop_requested_at = now

    def ended_at(self, now: float) -> float | None:
        """When it stopped holding its GPUs (and costing money), or None while it lives."""
        own = self._own_end()
        end = None if own is None else own.at
        if self.stop_requested_at is not None and (end is None or self.stop_requested_at < end):
            end = self.stop_requested_at + self.timings.stop
        return end if end is not None and end <= now else None

    def running_at(self, now: float) -> float | None:
        """When it began to run, or None if it has not or never did."""
        own = self._own_end()
        cut_short = (self.stop_requested_at is not None and self.stop_requested_at < self._run_at) or (
            own is not None and own.at < self._run_at
        )
        return None if cut_short or now < self._run_at else self._run_at

    def state(self, now: float) -> InstanceState:
        """What the cloud shows at `now`. A terminated instance is GONE; an exited one stays until it is terminated."""
        own = self._own_end()
        stop = self.stop_requested_at
        if own is not None and own.at <= now and (stop is None or own.at <= stop):
            return InstanceState.GONE if stop is not None and stop <= now else own.state
        if stop is not None:
            return InstanceState.STOPPING if now < stop + self.timings.stop else InstanceState.GONE
        if now < self.created_at + self.timings.queue:
            return InstanceState.QUEUED
        if now < self._start_at:
            return InstanceState.PROVISIONING
        return InstanceState.STARTING if now < self._run_at else InstanceState.RUNNING

    def end(self, now: float) -> Outcome | None:
        """How it ended by itself, for exit code and message; None if it lives or the customer ended it."""
        own = self._own_end()
        stopped_first = self.stop_requested_at is not None and (own is None or self.stop_requested_at < own.at)
        return None if own is None or own.at > now or stopped_first else own
