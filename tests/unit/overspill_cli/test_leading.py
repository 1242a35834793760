"""What doctor makes of leases and Deployments, and which lease is whose."""

import msgspec
import pytest

from overspill_admitter.service import LEASE as ADMITTER
from overspill_cli.doctoring import service_finding
from overspill_cli.findings import Finding, Health
from overspill_cli.leading import Seat, _of, vacancies
from overspill_decider.service import LEASE as DECIDER
from overspill_events.names import LEADING, SERVICES
from overspill_evictor.service import LEASE as EVICTOR
from overspill_objects.apps import Deployment
from overspill_sampler.service import LEASE as SAMPLER

LED = Seat(lease="overspill-system/overspill-decider", holder="pod-1")
VACANT = Seat(lease="overspill-system/overspill-decider", vacancy="its lease was given back")
NEVER = Seat(lease="overspill-system/overspill-decider", vacancy="it has no lease", was_led=False)


def deployment(name: str, *, replicas: int = 1, ready: int = 0) -> dict[str, Deployment]:
    raw = {"metadata": {"name": name}, "spec": {"replicas": replicas}, "status": {"readyReplicas": ready}}
    return {name: msgspec.convert(raw, Deployment)}


def judged(seat: Seat, deployments: dict[str, Deployment]) -> Finding:
    found = service_finding("decider", (seat,), deployments, namespace="overspill-system")
    assert found is not None
    return found


OURS = "overspill-decider"
RUNS, STOPPED, FAILS = (deployment(OURS, ready=1), deployment(OURS, replicas=0), deployment(OURS, replicas=2))
ANOTHERS = deployment("overspill-bridge", ready=1)


@pytest.mark.parametrize(
    ("seat", "deployments", "health", "said", "next_step"),
    [
        (LED, {}, Health.OK, "pod-1 leads", ""),
        (LED, RUNS, Health.OK, "pod-1 leads", ""),
        (
            LED,
            FAILS,
            Health.WARNING,
            "pod-1 leads, but Deployment overspill-decider has no ready replica of 2",
            "describe",
        ),
        (LED, ANOTHERS, Health.WARNING, "there is no Deployment overspill-decider", "kubectl apply -k deploy/"),
        (NEVER, {}, Health.WARNING, "nobody leads: it has no lease", "OVERSPILL_NAMESPACE"),
        (VACANT, {}, Health.PROBLEM, "nobody leads: its lease was given back", "does it run?"),
        (NEVER, ANOTHERS, Health.PROBLEM, "there is no Deployment overspill-decider", "kubectl apply -k deploy/"),
        (VACANT, STOPPED, Health.PROBLEM, "is scaled to 0", "scale deployment overspill-decider --replicas=1"),
        (VACANT, FAILS, Health.PROBLEM, "no ready replica of 2", "describe deployment overspill-decider"),
        (VACANT, RUNS, Health.PROBLEM, "its lease was given back", "logs deployment/overspill-decider"),
    ],
)
def test_a_service_that_does_not_lead_is_a_finding_with_what_to_do(seat, deployments, health, said, next_step):
    found = judged(seat, deployments)
    assert (found.what, found.health) == ("service decider", health)
    assert said in found.detail
    assert next_step in found.advice
    assert bool(found.advice) is (health is not Health.OK)


def test_the_recorder_needs_no_lease_and_is_judged_by_its_deployment():
    def judged(deployments: dict[str, Deployment]) -> Finding | None:
        return service_finding("recorder", (), deployments, namespace="overspill-system")

    assert judged({}) is None, "in a lab nobody can tell, so nothing is claimed"
    assert judged(deployment("overspill-recorder", ready=1)).health is Health.OK
    found = judged(deployment("overspill-recorder", replicas=0))
    assert (found.health, "scaled to 0" in found.detail) == (Health.WARNING, True)


def test_leases_are_told_apart_by_service_and_a_bridge_may_have_several():
    names = (SAMPLER, DECIDER, EVICTOR, ADMITTER, "overspill-bridge-b", "overspill-bridge-a", "overspill-bridges", "x")
    assert [_of(service, names) for service in LEADING] == [
        [SAMPLER],
        [DECIDER],
        [EVICTOR],
        [ADMITTER],
        ["overspill-bridge-a", "overspill-bridge-b"],
    ]
    assert {*LEADING, "recorder"} == set(SERVICES)


def test_one_living_seat_is_enough():
    assert vacancies({"bridge": (VACANT, LED), "decider": (VACANT,)}) == {
        "decider": "its lease was given back (overspill-system/overspill-decider)"
    }
