"""Choosing an offering: the cheapest that fits, and why the others were passed over. Pure.

All providers are one market. What refused lately is left out for a while by whoever fills the Market in; this module
only reads it.
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from overspill_bridge.wishes import Wish
from overspill_events.catalog import Offering
from overspill_events.reasons import SpillReason


class Market(Struct, frozen=True, kw_only=True):
    """One provider as it looks now. `blocked` says why nothing is asked of it; `offerings` None: never seen."""

    provider: str
    offerings: tuple[Offering, ...] | None
    blocked: SpillReason | None = None
    taken: Mapping[str, int] = {}  # per offering: created since its stock was last read
    cooling: Mapping[str, SpillReason] = {}  # offerings that refused lately, and why


class Offer(Struct, frozen=True, kw_only=True):
    """What to buy, and where."""

    provider: str
    offering: Offering


class NoOffer(Struct, frozen=True, kw_only=True):
    """Nothing to buy: the nearest reason, and each offering with why it was passed over."""

    reason: SpillReason
    detail: str
    tried: tuple[str, ...] = ()


# From nearest to a success to farthest: the first of these that occurred is the reason shown.
_NEAREST = (
    SpillReason.NO_STOCK,
    SpillReason.QUOTA,
    SpillReason.RATE_LIMITED,
    SpillReason.PRICE_CEILING,
    SpillReason.PAYMENT,
    SpillReason.CREDENTIALS,
    SpillReason.PROVIDER_DOWN,
)
_NO_MATCH = SpillReason.UNSUPPORTED
SHOWN = 20  # passed-over offerings in one event


def choose(wish: Wish, markets: tuple[Market, ...], *, gpus_left: int) -> Offer | NoOffer:
    """The cheapest fitting offering; ties by fewer GPUs, then the providers' order, then id.

    `gpus_left` is what max_external_gpus leaves; an offering beyond it is no choice, whatever its price.
    """
    fitting: list[tuple[tuple[float, int, int, str], Offer]] = []
    passed: list[tuple[SpillReason, str]] = []
    for order, market in enumerate(markets):
        for offering, reason in _judged(wish, market):
            if offering is not None and reason is None:
                rank = (offering.price_per_hour, offering.gpus, order, offering.id)
                fitting.append((rank, Offer(provider=market.provider, offering=offering)))
            elif reason is not None:
                name = market.provider if offering is None else f"{market.provider}/{offering.id}"
                passed.append(
                    (reason, f"{name}: {reason.value}" if reason is not _NO_MATCH else f"{name}: does not fit")
                )
    tried = tuple(text for _, text in passed[:SHOWN])
    fitting.sort(key=lambda pair: pair[0])
    within = next((offer for _, offer in fitting if offer.offering.gpus <= gpus_left), None)
    if within is not None:
        return within
    if fitting:
        detail = f"max_external_gpus leaves {max(gpus_left, 0)} GPUs; the pod needs {wish.gpus}"
        return NoOffer(reason=SpillReason.LIMIT, detail=detail, tried=tried)
    reasons = {reason for reason, _ in passed}
    reason = next((reason for reason in _NEAREST if reason in reasons), _NO_MATCH)
    return NoOffer(reason=reason, detail=_detail(wish, reason), tried=tried)


def _judged(wish: Wish, market: Market) -> Iterator[tuple[Offering | None, SpillReason | None]]:
    """Each offering with why it is passed over (None: it is not)."""
    if market.offerings is None or (market.blocked is not None and not market.offerings):
        yield None, market.blocked or SpillReason.PROVIDER_DOWN
        return
    for offering in market.offerings:
        if not _matches(wish, offering):
            yield offering, _NO_MATCH
        elif market.blocked is not None:
            yield offering, market.blocked
        elif wish.max_price is not None and offering.price_per_hour > wish.max_price:
            yield offering, SpillReason.PRICE_CEILING
        elif offering.id in market.cooling:
            yield offering, market.cooling[offering.id]
        elif offering.stock is not None and offering.stock - market.taken.get(offering.id, 0) <= 0:
            yield offering, SpillReason.NO_STOCK
        else:
            yield offering, None


def _matches(wish: Wish, offering: Offering) -> bool:
    return (
        offering.gpus >= wish.gpus
        and (not wish.gpu_types or offering.gpu_type in wish.gpu_types)
        and (not wish.regions or offering.region in wish.regions)
    )


def _detail(wish: Wish, reason: SpillReason) -> str:
    asked = f"{wish.gpus} GPU(s)"
    if wish.gpu_types:
        asked += f" of {' or '.join(wish.gpu_types)}"
    if wish.regions:
        asked += f" in {' or '.join(wish.regions)}"
    if wish.max_price is not None:
        asked += f" at up to ${wish.max_price:g}/h"
    if reason is _NO_MATCH:
        return f"no provider sells {asked}"
    return f"no provider has {asked} now"
