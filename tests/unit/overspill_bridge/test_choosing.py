"""Wishes and offerings: what a pod asks for and what it gets, with reasons."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overspill_bridge.desk import Desk
from overspill_bridge.offers import Market, NoOffer, Offer, choose
from overspill_bridge.wishes import Problem, Wish, wish_of
from overspill_events.names import GPU_TYPE_ANNOTATION, MAX_PRICE_ANNOTATION, REGIONS_ANNOTATION, SECRETS_ANNOTATION
from overspill_events.reasons import SpillReason
from overspill_providers.errors import ErrorKind, ProviderError
from tests.support.bridge_cases import offering, pod

RESOURCE = "nvidia.com/gpu"


def market(*offerings, **more):
    return Market(**({"provider": "p", "offerings": offerings} | more))


def test_a_wish_is_read_from_limits_and_annotations():
    annotations = {MAX_PRICE_ANNOTATION: "2.50", REGIONS_ANNOTATION: "north, south", GPU_TYPE_ANNOTATION: "h100"}
    assert wish_of(pod(gpus="4", meta={"annotations": annotations}), resource=RESOURCE) == Wish(
        gpus=4, gpu_types=("h100",), regions=("north", "south"), max_price=2.5
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (MAX_PRICE_ANNOTATION, "0"),
        (MAX_PRICE_ANNOTATION, "-1"),
        (MAX_PRICE_ANNOTATION, "NaN"),
        (MAX_PRICE_ANNOTATION, "Infinity"),
        (MAX_PRICE_ANNOTATION, "$3"),
        (MAX_PRICE_ANNOTATION, ""),
        (REGIONS_ANNOTATION, ""),
        (REGIONS_ANNOTATION, "a,,b"),
        (GPU_TYPE_ANNOTATION, ","),
        (SECRETS_ANNOTATION, "yes"),
    ],
)
def test_a_bad_annotation_is_named_with_its_value_and_what_is_accepted(name, value):
    problem = wish_of(pod(meta={"annotations": {name: value}}), resource=RESOURCE)
    assert problem.reason is SpillReason.BAD_ANNOTATION
    assert name in problem.detail
    assert repr(value) in problem.detail
    assert "accepted:" in problem.detail


@pytest.mark.parametrize("gpus", ["0", "1500m", "many", "-1"])
def test_a_pod_without_whole_gpus_is_no_customer(gpus):
    problem = wish_of(pod(gpus=gpus), resource=RESOURCE)
    assert isinstance(problem, Problem)
    assert problem.reason is SpillReason.UNSUPPORTED


def test_the_cheapest_that_fits_wins_wherever_it_is_sold():
    cheap = offering("cheap", price_per_hour=1.0, gpus=2)
    choice = choose(Wish(gpus=1), (market(offering("dear")), market(cheap, provider="q")), gpus_left=8)
    assert choice == Offer(provider="q", offering=cheap)


def test_a_tie_is_decided_the_same_everywhere():
    twins = (offering("b"), offering("a"))
    assert choose(Wish(gpus=1), (market(*twins),), gpus_left=8).offering.id == "a"
    assert choose(Wish(gpus=1), (market(*reversed(twins)),), gpus_left=8).offering.id == "a"


@pytest.mark.parametrize(
    ("wish", "one", "reason"),
    [
        (Wish(gpus=1), market(offering(stock=0)), SpillReason.NO_STOCK),
        (Wish(gpus=1), market(offering(stock=2), taken={"a100": 2}), SpillReason.NO_STOCK),
        (Wish(gpus=1), market(offering(), cooling={"a100": SpillReason.NO_STOCK}), SpillReason.NO_STOCK),
        (Wish(gpus=1, max_price=1.99), market(offering()), SpillReason.PRICE_CEILING),
        (Wish(gpus=1), market(offering(), blocked=SpillReason.CREDENTIALS), SpillReason.CREDENTIALS),
        (Wish(gpus=1), Market(provider="p", offerings=None), SpillReason.PROVIDER_DOWN),
        (Wish(gpus=2), market(offering()), SpillReason.UNSUPPORTED),
        (Wish(gpus=1, regions=("south",)), market(offering()), SpillReason.UNSUPPORTED),
        (Wish(gpus=1), market(offering(gpus=9)), SpillReason.LIMIT),
    ],
)
def test_each_reason_for_nothing_has_its_name(wish, one, reason):
    answer = choose(wish, (one,), gpus_left=8)
    assert isinstance(answer, NoOffer)
    assert answer.reason is reason


def test_an_outage_is_not_called_a_lack_of_stock_and_stock_is_nearer_than_price():
    down = market(offering(), blocked=SpillReason.PROVIDER_DOWN)
    assert choose(Wish(gpus=1), (down,), gpus_left=8).reason is SpillReason.PROVIDER_DOWN
    mixed = (down, market(offering(stock=0), provider="q"))
    assert choose(Wish(gpus=1), mixed, gpus_left=8).reason is SpillReason.NO_STOCK


def test_a_stock_that_is_not_told_is_tried():
    assert isinstance(choose(Wish(gpus=1), (market(offering(stock=None)),), gpus_left=8), Offer)


offerings = st.builds(
    offering,
    st.sampled_from("abcdef"),
    gpus=st.integers(0, 8),
    price_per_hour=st.floats(0.1, 10),
    stock=st.none() | st.integers(0, 2),
    region=st.sampled_from(["north", "south"]),
)
wishes = st.builds(
    Wish,
    gpus=st.integers(1, 8),
    regions=st.sampled_from([(), ("north",), ("south", "east")]),
    max_price=st.none() | st.floats(0.1, 10),
)


@given(wish=wishes, sold=st.lists(offerings, max_size=6), left=st.integers(-2, 10))
def test_what_is_chosen_fits_and_nothing_cheaper_does(wish, sold, left):
    answer = choose(wish, (market(*sold),), gpus_left=left)
    fitting = [
        o
        for o in sold
        if wish.gpus <= o.gpus <= left
        and (not wish.regions or o.region in wish.regions)
        and (wish.max_price is None or o.price_per_hour <= wish.max_price)
        and o.stock != 0
    ]
    if fitting:
        assert answer.offering in fitting
        assert answer.offering.price_per_hour == min(o.price_per_hour for o in fitting)
    else:
        assert isinstance(answer, NoOffer)


# --- a provider's desk ---


def desk():
    one = Desk("p", cooldown=60.0, silence=30.0)
    one.answered((offering("a"), offering("b")))
    return one


def error(kind, **more):
    return ProviderError(kind, "no", **more)


def test_no_capacity_closes_one_offering_for_a_while_and_nothing_else():
    one = desk()
    assert one.refused("a", error(ErrorKind.NO_CAPACITY), now=0.0) is SpillReason.NO_STOCK
    assert one.market(59.0).cooling == {"a": SpillReason.NO_STOCK}
    assert one.market(59.0).blocked is None
    assert one.market(61.0).cooling == {}


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (ErrorKind.QUOTA, SpillReason.QUOTA),
        (ErrorKind.AUTH, SpillReason.CREDENTIALS),
        (ErrorKind.PAYMENT, SpillReason.PAYMENT),
    ],
)
def test_trouble_with_the_account_closes_the_account(kind, reason):
    one = desk()
    assert one.refused("a", error(kind), now=0.0) is reason
    assert one.market(59.0).blocked is reason
    assert one.market(61.0).blocked is None


def test_a_rate_limit_is_respected_as_long_as_asked():
    one = desk()
    one.refused("a", error(ErrorKind.RATE_LIMITED, retry_after=7.0), now=0.0)
    assert one.market(6.9).blocked is SpillReason.RATE_LIMITED
    assert one.market(7.1).blocked is None


@pytest.mark.parametrize("kind", [ErrorKind.UNKNOWN, ErrorKind.INVALID, ErrorKind.IMAGE])
def test_the_pods_own_fault_and_the_unknown_blame_no_provider(kind):
    one = desk()
    assert one.refused("a", error(kind), now=0.0) is None
    assert one.market(1.0).blocked is None
    assert one.market(1.0).cooling == {}


def test_failed_polls_are_an_outage_until_one_succeeds():
    one = desk()
    one.failed(error(ErrorKind.UNKNOWN), now=0.0)
    assert one.market(1.0).blocked is SpillReason.PROVIDER_DOWN
    sample = one.sample(instances=None, now=1.0)
    assert (sample.healthy, sample.offerings, sample.instances) == (False, (), None)
    assert one.answered((offering("a"),)), "after an outage everything it sells is new"
    assert one.market(2.0).blocked is None


def test_a_provider_is_reported_on_change_and_after_silence():
    one = desk()
    assert one.sample(instances=0, now=0.0) is not None
    assert one.sample(instances=0, now=29.0) is None
    assert one.sample(instances=1, now=29.0) is not None
    assert one.sample(instances=1, now=60.0) is not None


def test_what_was_taken_counts_until_the_stock_is_read_again():
    one = desk()
    one.took("a")
    assert one.market(0.0).taken == {"a": 1}
    one.answered((offering("a"),))
    assert one.market(0.0).taken == {}


def test_more_stock_is_noticed_and_less_is_not():
    one = desk()
    assert not one.answered((offering("a", stock=4), offering("b")))
    assert one.answered((offering("a", stock=5), offering("b")))
