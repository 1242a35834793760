"""Stock, bill and audit of the cloud: what the bridge is judged by must itself be right."""

import pytest

from overspill_events.catalog import Offering
from overspill_events.names import CLUSTER_TAG, POD_UID_TAG
from overspill_lab.cloud.__main__ import OfferingsError, read_offerings
from overspill_lab.cloud.faults import Switches
from overspill_lab.cloud.ledger import Ask, Ledger, Refused
from overspill_lab.cloud.life import EXIT_CODE_ENV, RUN_SECONDS_ENV, Timings
from overspill_providers.protocol import InstanceState

OFFERING = Offering(id="o", gpu_type="a100", gpus=2, region="r", price_per_hour=3.0, stock=2)


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def ledger(clock):
    timings = Timings(queue=1, provision=1, start=1, stop=1)
    return Ledger(offerings=(OFFERING,), timings=timings, hours_per_second=0.5, clock=clock)


def ask(uid="u", cluster="c", **more):
    return Ask(name="n", offering="o", image="i", tags={POD_UID_TAG: uid, CLUSTER_TAG: cluster}, **more)


def test_stock_counts_what_lives_and_comes_back_when_it_has_ended(ledger, clock):
    first = ledger.create(ask())
    ledger.create(ask())
    with pytest.raises(Refused) as refusal:
        ledger.create(ask())
    assert (refusal.value.status, refusal.value.code) == (409, "no-capacity")
    ledger.terminate(first.id)
    assert ledger.offerings()[0].stock == 0, "a stopping instance still has its GPUs"
    clock.now += 1
    assert ledger.offerings()[0].stock == 1


def test_names_are_not_unique(ledger):
    assert ledger.create(ask()).id != ledger.create(ask()).id


def test_the_bill_runs_from_creation_to_the_end(ledger, clock):
    one = ledger.create(ask())
    clock.now += 7
    ledger.terminate(one.id)
    clock.now += 100
    bill = ledger.bill()
    assert bill["instances"][0]["hours"] == pytest.approx(4.0), "7 s and 1 s of stopping, at half an hour per second"
    assert bill["totals"] == {
        "instances": 1,
        "living": 0,
        "hours": pytest.approx(4.0),
        "gpuHours": pytest.approx(8.0),
        "cost": pytest.approx(12.0),
    }


def test_two_living_instances_of_one_pod_are_an_overlap_with_its_length(ledger, clock):
    first = ledger.create(ask())
    clock.now += 10
    second = ledger.create(ask())
    (overlap,) = ledger.audit()["overlaps"]
    assert (overlap["first"], overlap["second"], overlap["to"]) == (first.id, second.id, None)
    ledger.terminate(first.id)
    clock.now += 50
    (overlap,) = ledger.audit()["overlaps"]
    assert overlap["seconds"] == pytest.approx(1.0)
    assert overlap["to"] is not None


def test_one_after_the_other_is_no_overlap_and_neither_are_two_clusters(ledger, clock):
    first = ledger.create(ask())
    ledger.terminate(first.id)
    clock.now += 1
    ledger.create(ask())
    ledger.create(ask(cluster="other"))
    assert ledger.audit()["overlaps"] == []


def test_pages_show_everything_once_and_leave_out_what_is_gone(ledger, clock):
    wide = Ledger(
        offerings=(Offering(id="o", gpu_type="a", gpus=1, region="r", price_per_hour=1.0),),
        timings=Timings(stop=0),
        hours_per_second=1,
        clock=clock,
    )
    records = [wide.create(ask()) for _ in range(7)]
    wide.terminate(records[3].id)
    seen, after = [], 0
    while after is not None:
        page, after = wide.page(after=after, limit=2)
        seen += [record.id for record in page]
    assert seen == [record.id for record in records if record is not records[3]]


@pytest.mark.parametrize("value", ["soon", "-1", "nan", "inf", ""])
def test_a_bad_run_length_names_the_variable(ledger, value):
    with pytest.raises(Refused, match=RUN_SECONDS_ENV):
        ledger.create(ask(env={RUN_SECONDS_ENV: value}))


def test_a_container_ends_as_its_environment_says(ledger, clock):
    one = ledger.create(ask(env={RUN_SECONDS_ENV: "2", EXIT_CODE_ENV: "5"}))
    clock.now += 5
    shown = ledger.show(one)
    assert (shown["state"], shown["exitCode"]) == (InstanceState.EXITED.value, 5)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "at least one offering"),
        ('[{"id":"a","gpuType":"x","gpus":-1,"region":"r","pricePerHour":1}]', r"\$\[0\].gpus"),
        ('[{"id":"a","gpuType":"x","gpus":1,"region":"r"}]', "pricePerHour"),
        ("nonsense", "offerings"),
    ],
)
def test_a_bad_offerings_file_names_file_and_field(tmp_path, text, words):
    file = tmp_path / "offerings.json"
    file.write_text(text)
    with pytest.raises(OfferingsError, match=words) as error:
        read_offerings(file)
    assert str(file) in str(error.value)


def test_an_unknown_fault_is_refused_by_name():
    with pytest.raises(Refused, match="no-such-fault"):
        Switches().set(b'{"no-such-fault": {}}')
    with pytest.raises(Refused, match="often"):
        Switches().set(b'{"no-capacity": {"often": 3}}')
