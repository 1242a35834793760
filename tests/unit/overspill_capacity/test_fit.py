"""Does this pod fit that node."""

from decimal import Decimal

import pytest

from overspill_capacity.fit import DoesNotFit, Fits, FitUnknown, find_home, fits, why_no_home
from overspill_capacity.room import HomeSnapshot, Reservation
from tests.unit.overspill_capacity.cluster import GPU, container, node, pod
from tests.unit.overspill_capacity.test_room import NOW


def home(*nodes, pods=(), **more) -> HomeSnapshot:
    return HomeSnapshot.build(nodes, pods, resource=GPU, **more)


def answer(asking, one=None, pods=()):
    return fits(asking, home(one or node(), pods=pods).rooms["n1"])


def affinity(*expressions, fields=()):
    term = {"matchExpressions": list(expressions), "matchFields": list(fields)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def test_room_on_every_resource_asked_for():
    assert answer(pod(gpus=8)) == Fits()
    short = answer(pod(gpus=9))
    assert (short.reason, short.needed, short.available) == (f"insufficient {GPU}", 9, 8)
    assert answer(pod(cpu="65")).resource == "cpu"
    assert answer(pod(), node(pods="1"), [pod("a", 0, on="n1")]).resource == "pods"
    assert answer(pod(resource="rdma/hca")).resource == "rdma/hca"


def test_an_overcommitted_resource_that_is_not_asked_for_does_not_matter():
    crowded = [pod("a", 9, on="n1")]
    assert answer(pod(gpus=0), pods=crowded) == Fits()
    assert answer(pod(gpus=1), pods=crowded).available == 0


def test_the_node_a_pod_is_bound_to_is_ignored_for_its_successor_is_meant():
    assert answer(pod(gpus=2, on="virtual")) == Fits()


def test_a_pods_own_nomination_and_reservation_do_not_stand_against_it():
    asking = pod("a", 8, status={"nominatedNodeName": "n1"})
    assert answer(asking, pods=[asking]) == Fits()
    booked = Reservation(key="uid-a", node="n1", requests={GPU: Decimal(8)}, expires_at=NOW)
    assert fits(pod("a", 8), home(node()).reserve(booked).rooms["n1"]) == Fits()
    assert fits(pod("b", 1), home(node()).reserve(booked).rooms["n1"]).resource == GPU


@pytest.mark.parametrize(
    ("selector", "fitting"), [({"zone": "a"}, True), ({"zone": "b"}, False), ({"disk": "ssd"}, False)]
)
def test_node_selector(selector, fitting):
    assert isinstance(answer(pod(spec={"nodeSelector": selector}), node(labels={"zone": "a"})), Fits) is fitting


@pytest.mark.parametrize(
    ("expression", "fitting"),
    [
        ({"key": "zone", "operator": "In", "values": ["a", "b"]}, True),
        ({"key": "zone", "operator": "NotIn", "values": ["a"]}, False),
        ({"key": "other", "operator": "NotIn", "values": ["a"]}, True),
        ({"key": "zone", "operator": "Exists"}, True),
        ({"key": "overspill.dev/virtual", "operator": "DoesNotExist"}, True),
        ({"key": "gen", "operator": "Gt", "values": ["6"]}, True),
        ({"key": "gen", "operator": "Lt", "values": ["7"]}, False),
        ({"key": "zone", "operator": "Gt", "values": ["6"]}, False),
    ],
)
def test_required_node_affinity(expression, fitting):
    labelled = node(labels={"zone": "a", "gen": "7"})
    assert isinstance(answer(pod(spec={"affinity": affinity(expression)}), labelled), Fits) is fitting


def test_affinity_by_name_and_a_term_without_expressions():
    named = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    assert answer(pod(spec={"affinity": affinity(fields=[named])})) == Fits()
    assert isinstance(answer(pod(spec={"affinity": affinity()})), DoesNotFit)


def test_an_operator_nobody_has_defined_is_unknown():
    odd = answer(pod(spec={"affinity": affinity({"key": "zone", "operator": "Near", "values": ["a"]})}))
    assert odd == FitUnknown(rule="node affinity on 'zone': operator 'Near' is not defined")


@pytest.mark.parametrize(
    ("toleration", "fitting"),
    [
        ({"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"}, True),
        ({"key": "team", "value": "a"}, True),
        ({"key": "team", "value": "b"}, False),
        ({"key": "team", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "team", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_hard_taints_need_a_toleration(toleration, fitting):
    tainted = node(taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}])
    assert isinstance(answer(pod(spec={"tolerations": [toleration]}), tainted), Fits) is fitting


def test_soft_taints_are_no_refusal():
    assert answer(pod(), node(taints=[{"key": "team", "effect": "PreferNoSchedule"}])) == Fits()


@pytest.mark.parametrize("bad", [node(ready="False"), node(cordoned=True)])
def test_ill_and_cordoned_nodes_refuse_everybody(bad):
    assert isinstance(answer(pod(spec={"tolerations": [{"operator": "Exists"}]}), bad), DoesNotFit)


UNMODELLED = [
    ({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}}, "required pod affinity"),
    (
        {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}},
        "required pod anti-affinity",
    ),
    ({"topologySpreadConstraints": [{"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]}, "hard topology spread"),
    ({"resourceClaims": [{"name": "gpu"}]}, "resource claims (DRA)"),
    ({"containers": [container(1, ports=[{"containerPort": 80, "hostPort": 80}])]}, "host ports"),
    ({"hostNetwork": True, "containers": [container(1, ports=[{"containerPort": 80}])]}, "host ports"),
    ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "x"}}]}, "volume of type persistentVolumeClaim"),
    ({"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]}, "volume of type hostPath"),
    ({"schedulerName": "volcano"}, "scheduler volcano"),
]


@pytest.mark.parametrize(("spec", "rule"), UNMODELLED)
def test_a_rule_that_is_not_modelled_is_unknown_by_name(spec, rule):
    assert answer(pod(spec=spec)) == FitUnknown(rule=rule)
    assert find_home(pod(spec=spec), home(node())) == FitUnknown(rule=rule)


@pytest.mark.parametrize(("spec", "rule"), UNMODELLED)
def test_a_definite_no_stands_whatever_else_is_asked(spec, rule):
    assert isinstance(answer(pod(spec=spec), node(gpus=0)), DoesNotFit)
    assert find_home(pod(spec=spec), home(node(gpus=0))) is None


@pytest.mark.parametrize(
    "spec",
    [
        {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}},
        {"topologySpreadConstraints": [{"maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}]},
        {"volumes": [{"name": v, v: {}} for v in ("emptyDir", "configMap", "secret", "projected", "downwardAPI")]},
        {"volumes": [{"name": "bare"}]},
        {"containers": [container(1, ports=[{"containerPort": 80}])]},
    ],
)
def test_what_only_weighs_or_is_harmless_fits(spec):
    assert answer(pod(spec=spec)) == Fits()


def test_find_home_takes_the_tightest_node():
    three = home(node("n1", 8), node("n2", 4), node("n3", 2))
    assert find_home(pod(gpus=3), three) == "n2"
    assert find_home(pod(gpus=1), three) == "n3"
    assert find_home(pod(gpus=9), three) is None


def test_find_home_prefers_a_sure_node_to_one_that_cannot_be_counted():
    assert find_home(pod(), home(node("n1", "many"), node("n2", 8))) == "n2"
    assert isinstance(find_home(pod(), home(node("n1", "many"))), FitUnknown)


def test_why_no_home_counts_the_refusals():
    crowd = home(node("n1", 1), node("n2", 1), node("n3", cordoned=True))
    assert why_no_home(pod(gpus=2), crowd) == f"0/3 home nodes fit: 2 insufficient {GPU}, 1 cordoned"
