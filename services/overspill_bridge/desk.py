"""One provider's standing: what it sells, whether it answers, what it refused lately. Pure; time comes in.

A refusal closes only what it speaks of: no capacity the offering, quota, credentials and payment the account, a rate
limit the account for as long as it asks; an unknown error closes nothing. After its time each is tried again.
"""

from overspill_bridge.offers import Market
from overspill_events.catalog import Offering, ProviderSampled
from overspill_events.reasons import SpillReason
from overspill_providers.errors import ErrorKind, ProviderError

RATE_LIMIT_PAUSE = 5.0  # seconds, when a provider limits without saying for how long

_ACCOUNT = {
    ErrorKind.QUOTA: SpillReason.QUOTA,
    ErrorKind.AUTH: SpillReason.CREDENTIALS,
    ErrorKind.PAYMENT: SpillReason.PAYMENT,
    ErrorKind.RATE_LIMITED: SpillReason.RATE_LIMITED,
}


class Desk:
    """All that is known of one provider but its instances."""

    def __init__(self, name: str, *, cooldown: float, silence: float) -> None:
        self.name = name
        self.offerings: tuple[Offering, ...] | None = None
        self.problem: str | None = "not asked yet"  # None: it answered last time
        self.is_down = False  # asked, and failing
        self._cooldown = cooldown
        self._silence = silence
        self._blocked: tuple[float, SpillReason] | None = None
        self._cooling: dict[str, tuple[float, SpillReason]] = {}
        self._taken: dict[str, int] = {}
        self._said: tuple[float, ProviderSampled] | None = None

    @property
    def is_healthy(self) -> bool:
        return self.problem is None

    def market(self, now: float) -> Market:
        """As the choice of an offering sees it."""
        blocked = self._blocked[1] if self._blocked is not None and self._blocked[0] > now else None
        if blocked is None and not self.is_healthy:
            blocked = SpillReason.PROVIDER_DOWN
        return Market(
            provider=self.name,
            offerings=self.offerings,
            blocked=blocked,
            taken=dict(self._taken),
            cooling={offering: reason for offering, (until, reason) in self._cooling.items() if until > now},
        )

    def answered(self, offerings: tuple[Offering, ...]) -> bool:
        """It listed and told its offerings. Returns whether there is more to buy than before."""
        before = {} if self.offerings is None or not self.is_healthy else {o.id: o.stock for o in self.offerings}
        self.problem, self.is_down, self.offerings = None, False, offerings
        self._taken.clear()
        return any(o.id not in before or _grew(before[o.id], o.stock) for o in offerings)

    def failed(self, error: ProviderError, *, now: float) -> None:
        """A list or a look at the offerings failed."""
        self.problem, self.is_down = str(error), True
        self._block(error, now)

    def took(self, offering: str) -> None:
        """A create was accepted: one less than the last stock says."""
        self._taken[offering] = self._taken.get(offering, 0) + 1

    def refused(self, offering: str, error: ProviderError, *, now: float) -> SpillReason | None:
        """A create was refused. Returns the reason if another offering or a later try may help, None if not."""
        if error.kind is ErrorKind.NO_CAPACITY:
            self.cool(offering, now=now)
            return SpillReason.NO_STOCK
        self._block(error, now)
        return _ACCOUNT.get(error.kind)

    def cool(self, offering: str, *, now: float) -> None:
        """Leave an offering alone for a while: it refused, or its instance never started."""
        self._cooling[offering] = (now + self._cooldown, SpillReason.NO_STOCK)

    def sample(self, *, instances: int | None, now: float) -> ProviderSampled | None:
        """The event to publish: on change, and after a silence; None otherwise."""
        event = ProviderSampled(
            provider=self.name,
            healthy=self.is_healthy,
            offerings=self.offerings or () if self.is_healthy else (),
            instances=instances if self.is_healthy else None,
            detail=self.problem or "",
        )
        if self._said is not None and self._said[1] == event and now - self._said[0] < self._silence:
            return None
        self._said = (now, event)
        return event

    def _block(self, error: ProviderError, now: float) -> None:
        reason = _ACCOUNT.get(error.kind)
        if reason is not None:
            pause = self._cooldown
            if reason is SpillReason.RATE_LIMITED:
                pause = RATE_LIMIT_PAUSE if error.retry_after is None else error.retry_after
            self._blocked = (now + pause, reason)


def _grew(before: int | None, after: int | None) -> bool:
    return (before is not None and after is None) or (before is not None and after is not None and after > before)
