"""The admission policies of deploy/ on a real API server.

The mutating ones must do exactly what the lab does by itself: the same objects are created on both, and what comes out
is compared whole. The validating ones must refuse what RBAC cannot, say why, and let our services do their work.
"""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from overspill_bridge import nodeobject
from tests.cluster.controlplane.start import ControlPlane, control_plane
from tests.contract.kubernetes.client import JSON_PATCH, STRATEGIC_PATCH, Api, Object, Reply, endpoint_of, eventually
from tests.contract.kubernetes.objects import make_ready
from tests.support.deployed import apply, endpoint_as
from tests.support.lab_apiserver import lab_apiserver
from tests.support.manifests import DEPLOY, INSTALL, documents

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="module")]

SPILLABLE = {"overspill.dev/spillable": "true"}
QUEUED = {"kueue.x-k8s.io/queue-name": "queue"}
PODS, JOBS, NODES = "/api/v1/namespaces/team/pods", "/apis/batch/v1/namespaces/team/jobs", "/api/v1/nodes"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
SWITCH = {"key": "overspill.dev/home-has-room", "value": "true", "effect": "NoSchedule"}
BASE = {"key": "overspill.dev/external", "value": "true", "effect": "NoSchedule"}
VIRTUAL = {"overspill.dev/virtual": "true"}
GATE = {"name": "overspill.dev/admission"}
# An owner that does not exist: the garbage collector deletes what only such ones own.
NOBODYS = {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "u-0"}]}
IMAGE = {"spec": {"containers": [{"name": "main", "image": "other"}]}}
SYSTEM_PODS = "/api/v1/namespaces/kube-system/pods"
# No kubelet keeps the nodes here; nobody may taint them for that in the middle of a test.
SILENCE = ("--node-monitor-grace-period=1h",)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane() -> AsyncIterator[ControlPlane]:
    """A real API server with everything of deploy/ but what would run."""
    async with control_plane(controller_flags=SILENCE) as started:
        await apply(started, INSTALL, "--server-side")
        async with Api(endpoint_of(started.kubeconfig)) as admin:
            (await admin.post("/api/v1/namespaces", {"metadata": {"name": "team"}})).ok()
            await admin.eventually("/api/v1/namespaces/team/serviceaccounts/default", bool, "an account for pods")
            await _policies_work(admin)
        yield started


async def _policies_work(admin: Api) -> None:
    """Policies take effect a moment after they were made: until the last one of each kind does."""
    body = pod(SPILLABLE | QUEUED, containers=[container(gpus=1)])

    async def mutated() -> Object:
        # Refused while the server knows the policies that name a priority class, and not yet the class.
        return (await admin.post(PODS, body, dryRun="All")).body.get("spec", {})

    def whole(spec: Object) -> bool:
        tolerated = BASE["key"] in {one.get("key") for one in spec.get("tolerations", [])}
        return tolerated and {"affinity", "schedulingGates", "priorityClassName"} <= set(spec)

    await eventually(mutated, whole, "all mutating policies work on pods")
    job = {"metadata": {"name": "first", "labels": QUEUED}, "spec": template([container(gpus=1)])}

    async def held() -> Object:
        return (await admin.post(JOBS, job, dryRun="All")).body.get("spec", {})

    await eventually(
        held, lambda spec: spec.get("suspend") and "priorityClassName" in spec["template"]["spec"], "on Jobs"
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def admin(plane: ControlPlane) -> AsyncIterator[Api]:
    async with Api(endpoint_of(plane.kubeconfig)) as api:
        yield api


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Api]:
    """The lab's API server with the same priority classes."""
    async with lab_apiserver(tmp_path_factory.mktemp("lab")) as kubeconfig, Api(endpoint_of(kubeconfig)) as api:
        (await api.post("/api/v1/namespaces", {"metadata": {"name": "team"}})).ok()
        for one in documents(DEPLOY / "base/policies/priorities.yaml"):
            (await api.post(CLASSES, one)).ok()
        yield api


# --- what goes in ----------------------------------------------------------------------------------------------------


def container(*, gpus: Any = None, name: str = "main") -> Object:
    limits = {"limits": {"nvidia.com/gpu": gpus}} if gpus is not None else {}
    return {"name": name, "image": "image", "resources": limits}


def pod(labels: Object, *, containers: list[Object] | None = None, meta: Object | None = None, **spec: Any) -> Object:
    return {
        "metadata": {"name": "pod", "labels": dict(labels), **(meta or {})},
        "spec": {"automountServiceAccountToken": False, "containers": containers or [container()], **spec},
    }


def template(containers: list[Object], labels: Object | None = None, **spec: Any) -> Object:
    return {
        "template": {
            "metadata": {"labels": labels or {}},
            "spec": {"restartPolicy": "Never", "containers": containers, **spec},
        }
    }


def job(labels: Object, containers: list[Object], *, suspend: bool | None = None, **spec: Any) -> Object:
    held = {} if suspend is None else {"suspend": suspend}
    return {"metadata": {"name": "job", "labels": dict(labels)}, "spec": template(containers, labels, **spec) | held}


def preference(key: str) -> Object:
    return {"weight": 5, "preference": {"matchExpressions": [{"key": key, "operator": "DoesNotExist"}]}}


def affinity(*terms: Object) -> Object:
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": list(terms)}}


REQUIRED = {
    "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]
    }
}
OWNED = {"ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u-1", "controller": True}]}
KNOWN = {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u-2"}]}
BY_FIELDS = {"weight": 3, "preference": {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}}

CASES: dict[str, Object] = {
    "untouched": pod({}, containers=[container(gpus=2)]),
    "spillable": pod(SPILLABLE, containers=[container(gpus=1)]),
    "spillable in another word": pod({"overspill.dev/spillable": "yes"}),
    "tolerates already": pod(SPILLABLE, tolerations=[{"key": "overspill.dev/external", "operator": "Exists"}]),
    "tolerates all": pod(SPILLABLE, tolerations=[{"operator": "Exists"}]),
    "tolerates others": pod(SPILLABLE, tolerations=[{"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"}]),
    "prefers already": pod(SPILLABLE, affinity=affinity(preference("overspill.dev/virtual"))),
    "prefers others": pod(SPILLABLE, affinity=affinity(preference("zone"), BY_FIELDS)),
    "prefers nothing": pod(SPILLABLE, affinity={"nodeAffinity": {}}),
    "empty affinity": pod(SPILLABLE, affinity={}),
    "requires": pod(SPILLABLE, affinity={"nodeAffinity": REQUIRED}),
    "keeps apart": pod(SPILLABLE, affinity={"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}),
    "queued": pod(QUEUED),
    "queued with GPUs": pod(QUEUED, containers=[container(gpus=1), container(gpus="2", name="other"), container(name="third")]),
    "queued with eight": pod(QUEUED, containers=[container(gpus=8)]),
    "queued with nine": pod(QUEUED, containers=[container(gpus=8), container(gpus=1, name="other")]),
    "queued with a class": pod(QUEUED, containers=[container(gpus=4)], priorityClassName="overspill-gpu-1"),
    "queued for the system": pod(QUEUED, containers=[container(gpus=4)], priorityClassName="system-cluster-critical"),
    "queued and gated": pod(QUEUED, schedulingGates=[{"name": "overspill.dev/admission"}]),
    "queued behind another gate": pod(QUEUED, schedulingGates=[{"name": "example.com/other"}]),
    "queued and controlled": pod(QUEUED, containers=[container(gpus=2)], meta=OWNED),
    "queued and owned": pod(QUEUED, meta=KNOWN),
    "both": pod(SPILLABLE | QUEUED, containers=[container(gpus=3)], affinity=affinity(preference("zone"))),
    "job": job({}, [container(gpus=1)]),
    "queued job": job(QUEUED, [container(gpus=1)]),
    "queued job without GPUs": job(QUEUED, [container()]),
    "queued job that would run": job(QUEUED, [container(gpus=2)], suspend=False),
    "queued job that waits": job(QUEUED, [container(gpus=2), container(gpus="4", name="other")], suspend=True),
    "queued job with a class": job(QUEUED, [container(gpus=2)], priorityClassName="overspill-gpu-8"),
    "queued job with many": job(QUEUED, [container(gpus=16)]),
}  # fmt: skip


def random_pod(dice: random.Random) -> Object:
    """Any mixture of what the cases have."""
    labels = (SPILLABLE if dice.random() < 0.7 else {}) | (QUEUED if dice.random() < 0.6 else {})
    counts = [dice.choice([None, 1, "2", 3, 8]) for _ in range(dice.randint(1, 3))]
    spec: Object = {}
    if dice.random() < 0.5:
        keys = dice.sample(["a", "b", "overspill.dev/external"], dice.randint(1, 3))
        spec["tolerations"] = [{"key": key, "operator": "Exists"} for key in keys]
    if dice.random() < 0.6:
        terms = [preference(key) for key in dice.sample(["a", "overspill.dev/virtual"], dice.randint(0, 2))]
        spec["affinity"] = affinity(*terms) if dice.random() < 0.8 else {"nodeAffinity": REQUIRED}
    if dice.random() < 0.3:
        spec["priorityClassName"] = f"overspill-gpu-{dice.randint(1, 8)}"
    if dice.random() < 0.3:
        spec["schedulingGates"] = [{"name": dice.choice(["overspill.dev/admission", "example.com/other"])}]
    containers = [container(gpus=gpus, name=f"c{index}") for index, gpus in enumerate(counts)]
    return pod(labels, containers=containers, meta=dice.choice([None, OWNED]), **spec)


async def admitted(api: Api, body: Object) -> Object:
    """The object's spec as the server would store it."""
    path = JOBS if "template" in body["spec"] else PODS
    spec = (await api.post(path, copy.deepcopy(body), dryRun="All")).ok()["spec"]
    spec.pop("selector", None)  # of a Job: its UID, as the labels of its pods
    if path == JOBS:
        spec["template"]["metadata"] = {}
    return spec


# --- mutations -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
async def test_the_lab_does_the_same(admin: Api, lab: Api, case: str) -> None:
    assert await admitted(lab, CASES[case]) == await admitted(admin, CASES[case])


async def test_the_lab_does_the_same_with_any_pod(admin: Api, lab: Api) -> None:
    seed = random.SystemRandom().randrange(10**9)
    dice = random.Random(seed)
    for _ in range(60):
        body = random_pod(dice)
        assert await admitted(lab, body) == await admitted(admin, body), f"seed {seed}: {body}"


@pytest.mark.parametrize("case", CASES)
async def test_admitting_again_changes_nothing(admin: Api, case: str) -> None:
    """What came out, sent in again: re-invocation, a restored backup, a copy made by hand."""
    once = await admitted(admin, CASES[case])
    again = copy.deepcopy(CASES[case])
    again["spec"] = copy.deepcopy(once)
    again["spec"].pop("priority", None)  # computed from the class; the server takes no other
    again["spec"].pop("preemptionPolicy", None)
    assert await admitted(admin, again) == once


async def test_what_is_mutated_is_what_the_design_says(admin: Api) -> None:
    spec = await admitted(admin, CASES["both"])
    assert {"key": "overspill.dev/external", "operator": "Exists", "effect": "NoSchedule"} in spec["tolerations"]
    terms = spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    home = {"matchExpressions": [{"key": "overspill.dev/virtual", "operator": "DoesNotExist"}]}
    assert terms == [preference("zone"), {"weight": 100, "preference": home}]
    assert spec["schedulingGates"] == [{"name": "overspill.dev/admission"}]
    assert (spec["priorityClassName"], spec["priority"]) == ("overspill-gpu-3", 103)
    assert (await admitted(admin, CASES["queued job"]))["suspend"] is True


# --- what our services may not do -------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def acting_as(plane: ControlPlane, service: str) -> AsyncIterator[Api]:
    async with Api(await endpoint_as(plane, f"overspill-{service}")) as api:
        yield api


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nodes(plane: ControlPlane, admin: Api) -> None:
    """One virtual node and one of home's."""
    for name, labels in (("overspill-one", VIRTUAL), ("home", {})):
        (await admin.post(NODES, {"metadata": {"name": name, "labels": labels}, "spec": {"taints": [BASE]}})).ok()
        await make_ready(admin, name)  # from now on nobody else writes its taints
    await admin.eventually("/api/v1/namespaces/kube-system/serviceaccounts/default", bool, "an account for pods")
    (await admin.post(SYSTEM_PODS, pod({}, meta={"name": "guarded"}, nodeName="home"))).ok()
    change = {"metadata": {"annotations": {"a": "b"}}}
    # Until the policies speak: that of the decider, and the last one that was applied.
    for service, path in (("decider", f"{NODES}/home"), ("admitter", f"{SYSTEM_PODS}/guarded")):
        async with acting_as(plane, service) as client:
            await eventually(
                lambda client=client, path=path: client.patch(path, change, dryRun="All"),
                lambda reply: reply.status == 422,
                f"validating policies work for the {service}",
            )


def refused(reply: Reply, why: str) -> None:
    """By a policy, which gives its reason; not by RBAC, and not by accident."""
    message = reply.refused(422, "Invalid")["message"]
    assert "ValidatingAdmissionPolicy 'overspill-" in message
    assert why in message


async def taints(api: Api, node: str, *wanted: Object) -> Reply:
    return await api.patch(
        f"{NODES}/{node}", [{"op": "replace", "path": "/spec/taints", "value": [*wanted]}], JSON_PATCH
    )


@pytest.mark.usefixtures("nodes")
async def test_the_decider_turns_the_switch_and_nothing_else(plane: ControlPlane, admin: Api) -> None:
    virtual = f"{NODES}/overspill-one"
    before = [one for one in (await admin.get(virtual)).ok()["spec"]["taints"] if one != SWITCH]
    async with acting_as(plane, "decider") as decider:
        (await taints(decider, "overspill-one", *before, SWITCH)).ok()
        (await taints(decider, "overspill-one", *before)).ok()
        refused(await taints(decider, "overspill-one", SWITCH), "no other taint")
        refused(await taints(decider, "overspill-one", *before, {"key": "x", "effect": "NoExecute"}), "no other taint")
        refused(await taints(decider, "overspill-one", *before, SWITCH | {"effect": "NoExecute"}), "effect NoSchedule")
        refused(await taints(decider, "home", BASE, SWITCH), "virtual nodes only; home is none")
        refused(await decider.patch(virtual, {"spec": {"unschedulable": True}}), "nothing else of a node's spec")
        refused(await decider.patch(virtual, {"metadata": {"labels": {"a": "b"}}}), "no labels")
        refused(await decider.patch(virtual, {"metadata": {"finalizers": ["example.com/a"]}}), "no labels, finalizers")
        refused(await decider.patch(virtual, {"metadata": {"annotations": {"a": "b"}}}), "no annotations")
        # An operator's order runs out by the decider's hand.
        (await admin.patch(virtual, {"metadata": {"annotations": {"overspill.dev/gate": "open", "mine": "1"}}})).ok()
        (await decider.patch(virtual, {"metadata": {"annotations": {"overspill.dev/gate": None}}})).ok()
        refused(await decider.patch(virtual, {"metadata": {"annotations": {"mine": None}}}), "no annotations")


@pytest.mark.usefixtures("nodes")
async def test_the_bridge_writes_its_own_nodes(plane: ControlPlane, admin: Api) -> None:
    def node(name: str, labels: Object, *taints: Object) -> Object:
        return {"metadata": {"name": name, "labels": labels}, "spec": {"taints": [*taints]}}

    async with acting_as(plane, "bridge") as bridge:
        (await bridge.post(NODES, node("overspill-two", VIRTUAL, BASE, SWITCH))).ok()
        await make_ready(admin, "overspill-two")  # from now on nobody else writes its taints
        refused(await bridge.post(NODES, node("home-two", VIRTUAL, BASE, SWITCH)), "not home-two")
        refused(
            await bridge.post(NODES, node("overspill-three", {}, BASE, SWITCH)), "labelled overspill.dev/virtual only"
        )
        refused(await bridge.post(NODES, node("overspill-three", VIRTUAL, BASE)), "gate closed")
        status = {"status": {"capacity": {"nvidia.com/gpu": "8"}}}
        (await bridge.patch(f"{NODES}/overspill-two/status", status, STRATEGIC_PATCH)).ok()
        refused(await bridge.patch(f"{NODES}/home/status", status, STRATEGIC_PATCH), "not home")
        refused(await bridge.patch(f"{NODES}/home", {"metadata": {"labels": VIRTUAL}}), "not home")
        before = (await admin.get(f"{NODES}/overspill-two")).ok()["spec"]["taints"]
        refused(
            await taints(bridge, "overspill-two", *[one for one in before if one["key"] != SWITCH["key"]]),
            "the decider's",
        )
        (
            await taints(
                bridge, "overspill-two", *before, {"key": "overspill.dev/prefer-home", "effect": "PreferNoSchedule"}
            )
        ).ok()


@pytest.mark.usefixtures("nodes")
async def test_the_bridge_gives_its_nodes_its_own_taints_only(plane: ControlPlane, admin: Api) -> None:
    def node(**more: Any) -> Object:
        return {"metadata": {"name": "overspill-four", "labels": VIRTUAL, **more}, "spec": {"taints": [BASE, SWITCH]}}

    why, url = "no other taint", f"{NODES}/overspill-four"
    evicting = {"key": "x", "effect": "NoExecute"}
    async with acting_as(plane, "bridge") as bridge:
        refused(await bridge.post(NODES, node() | {"spec": {"taints": [BASE, SWITCH, evicting]}}), why)
        refused(await bridge.post(NODES, node() | {"spec": {"taints": [SWITCH | {"effect": "NoExecute"}]}}), why)
        refused(await bridge.post(NODES, node(**NOBODYS)), "may not give a node owners")
        (await bridge.post(NODES, node())).ok()
        await make_ready(admin, "overspill-four")  # from now on nobody else writes its taints
        before = (await admin.get(url)).ok()["spec"]["taints"]
        refused(await taints(bridge, "overspill-four", *before, evicting), why)
        refused(await taints(bridge, "overspill-four", *before, BASE | {"effect": "NoExecute"}), why)
        refused(await bridge.patch(url, {"metadata": NOBODYS}), "may not give a node owners")
        # Others' taints stay, and the base taint comes back behind them.
        (await taints(admin, "overspill-four", SWITCH, evicting)).ok()
        refused(await taints(bridge, "overspill-four", SWITCH), why)
        (await taints(bridge, "overspill-four", SWITCH, evicting, BASE)).ok()


@pytest.mark.usefixtures("nodes")
async def test_the_bridge_labels_a_node_again_that_is_virtual_by_its_status(plane: ControlPlane, admin: Api) -> None:
    label, version = {"metadata": {"labels": VIRTUAL}}, {"status": {"nodeInfo": {"kubeletVersion": nodeobject.VERSION}}}
    for name in ("overspill-five", "overspill-homely"):
        (await admin.post(NODES, {"metadata": {"name": name}})).ok()
    (await admin.patch(f"{NODES}/overspill-five/status", version, STRATEGIC_PATCH)).ok()
    async with acting_as(plane, "bridge") as bridge:
        refused(await bridge.patch(f"{NODES}/overspill-homely", label), "labelled overspill.dev/virtual only")
        refused(await bridge.patch(f"{NODES}/overspill-homely/status", version, STRATEGIC_PATCH), "labelled")
        refused(await bridge.patch(f"{NODES}/overspill-five", {"metadata": {"labels": {"a": "b"}}}), "labelled")
        (await bridge.patch(f"{NODES}/overspill-five", label)).ok()


@pytest.mark.usefixtures("nodes")
async def test_the_bridge_marks_a_spilled_pod_and_changes_nothing_else_of_it(plane: ControlPlane, admin: Api) -> None:
    url, why = f"{PODS}/marked", "annotations, tolerations and status only"
    (await admin.post(PODS, pod(SPILLABLE, meta={"name": "marked"}, nodeName="overspill-one"))).ok()
    longer = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
    async with acting_as(plane, "bridge") as bridge:
        mark = {"metadata": {"annotations": {"overspill.dev/instance": "i"}}}
        (await bridge.patch(url, mark)).ok()
        (await bridge.patch(url, [{"op": "add", "path": "/spec/tolerations/-", "value": longer}], JSON_PATCH)).ok()
        for change in (NOBODYS, {"labels": {"a": "b"}}, {"labels": None}, {"finalizers": ["example.com/a"]}):
            refused(await bridge.patch(url, {"metadata": change}), why)
        # The server itself keeps owners out of a status.
        refused(await bridge.patch(f"{url}/status", {"metadata": {"labels": {"a": "b"}}}), why)
        refused(await bridge.patch(url, IMAGE, STRATEGIC_PATCH), why)
        refused(await bridge.patch(url, {"spec": {"activeDeadlineSeconds": 1}}), why)


@pytest.mark.usefixtures("nodes")
async def test_the_admitter_opens_the_gate_of_a_pod_and_nothing_else(plane: ControlPlane, admin: Api) -> None:
    other = {"name": "example.com/other"}
    queued, plain, old = f"{PODS}/gated", f"{PODS}/no-queue", f"{PODS}/old"
    by_annotation = {"name": "old", "annotations": QUEUED}
    (await admin.post(PODS, pod(QUEUED, meta={"name": "gated"}, schedulingGates=[other, GATE]))).ok()
    (await admin.post(PODS, pod({}, meta={"name": "no-queue"}, schedulingGates=[GATE]))).ok()
    (await admin.post(PODS, pod({}, meta=by_annotation, schedulingGates=[GATE]))).ok()

    def gates(*left: Object) -> list[Object]:
        return [{"op": "replace", "path": "/spec/schedulingGates", "value": [*left]}]

    async with acting_as(plane, "admitter") as admitter:
        for change in (
            *({field: {"a": "b"}} for field in ("labels", "annotations")),
            {"labels": None},
            {"finalizers": ["example.com/a"]},
            NOBODYS,
        ):
            refused(await admitter.patch(queued, {"metadata": change}), "change no labels, annotations, finalizers")
        refused(await admitter.patch(queued, gates(GATE), JSON_PATCH), "no other gate")
        refused(await admitter.patch(queued, gates(), JSON_PATCH), "no other gate")
        refused(await admitter.patch(plain, gates(), JSON_PATCH), "team/no-queue names none")
        for path, value in (
            ("containers/0/image", "other"),
            ("nodeSelector", {"a": "b"}),
            ("tolerations/-", {"operator": "Exists"}),
        ):
            change = {"op": "add", "path": f"/spec/{path}", "value": value}
            refused(await admitter.patch(queued, [*gates(other), change], JSON_PATCH), "nothing else of a pod's spec")
        (await admitter.patch(queued, gates(other), JSON_PATCH)).ok()
        (await admitter.patch(old, gates(), JSON_PATCH)).ok()
        # What runs is none of its business.
        (await admin.post(PODS, pod(QUEUED, meta={"name": "bound"} | KNOWN | OWNED, nodeName="home"))).ok()
        refused(await admitter.patch(f"{PODS}/bound", IMAGE, STRATEGIC_PATCH), "nothing else of a pod's spec")
        refused(await admitter.patch(f"{PODS}/bound", {"metadata": NOBODYS}), "finalizers or owners")


@pytest.mark.usefixtures("nodes")
async def test_the_admitter_lets_queued_jobs_run_and_nothing_else(plane: ControlPlane, admin: Api) -> None:
    for name, labels, noted in (("queued", QUEUED, {}), ("nightly", {}, {}), ("annotated", {}, QUEUED)):
        body = job(labels, [container()], suspend=True)
        body["metadata"] |= {"name": name, "annotations": noted}
        (await admin.post(JOBS, body)).ok()
    queued, run = f"{JOBS}/queued", {"spec": {"suspend": False}}
    async with acting_as(plane, "admitter") as admitter:
        refused(await admitter.patch(f"{JOBS}/nightly", run), "team/nightly names none")
        for change in (NOBODYS, {"labels": {"a": "b"}}, {"annotations": {"a": "b"}}, {"finalizers": ["example.com/a"]}):
            refused(await admitter.patch(queued, {"metadata": change} | run), "finalizers or owners")
        scheduling = {"template": {"spec": {"nodeSelector": {"a": "b"}}}}
        for change in ({"parallelism": 50}, {"activeDeadlineSeconds": 1}, scheduling):
            refused(await admitter.patch(queued, {"spec": change | run["spec"]}), "nothing else of its spec")
        for name in ("queued", "annotated"):
            (await admitter.patch(f"{JOBS}/{name}", run)).ok()
        refused(await admitter.patch(queued, {"spec": {"suspend": True}}), "suspend none")


@pytest.mark.usefixtures("nodes")
async def test_comparing_a_huge_workload_is_not_too_much_for_the_server(plane: ControlPlane, admin: Api) -> None:
    """An expression that exceeds its budget would refuse: such a pod would never be admitted, nor marked."""
    environment = [{"name": f"V{number}", "value": "v" * 100} for number in range(100)]
    many = [container(name=f"c{number}") | {"env": environment} for number in range(50)]
    run, mark = {"spec": {"suspend": False}}, {"metadata": {"annotations": {"overspill.dev/instance": "i"}}}
    waiting = job(QUEUED, many, suspend=True)
    waiting["metadata"]["name"] = "huge"
    (await admin.post(JOBS, waiting)).ok()
    (await admin.post(PODS, pod(QUEUED, containers=many, meta={"name": "huge"}))).ok()
    (await admin.post(PODS, pod({}, containers=many, meta={"name": "huge-outside"}, nodeName="overspill-one"))).ok()
    opened = [{"op": "replace", "path": "/spec/schedulingGates", "value": []}]
    async with acting_as(plane, "admitter") as admitter:
        (await admitter.patch(f"{JOBS}/huge", run)).ok()
        (await admitter.patch(f"{PODS}/huge", opened, JSON_PATCH)).ok()
    async with acting_as(plane, "bridge") as bridge:
        (await bridge.patch(f"{PODS}/huge-outside", mark)).ok()


@pytest.mark.usefixtures("nodes")
async def test_the_bridge_touches_pods_of_virtual_nodes_only(plane: ControlPlane, admin: Api) -> None:
    for name, node in (("spilled", "overspill-one"), ("at-home", "home")):
        body = pod({}, meta={"name": name}, nodeName=node, terminationGracePeriodSeconds=60)
        (await admin.post(PODS, body)).ok()
    mark = {"metadata": {"annotations": {"overspill.dev/instance": "i"}}}
    running = {"status": {"phase": "Running"}}
    async with acting_as(plane, "bridge") as bridge:
        (await bridge.patch(f"{PODS}/spilled", mark)).ok()
        (await bridge.patch(f"{PODS}/spilled/status", running, STRATEGIC_PATCH)).ok()
        refused(await bridge.patch(f"{PODS}/at-home", mark), "team/at-home is not bound to one")
        refused(await bridge.patch(f"{PODS}/at-home/status", running, STRATEGIC_PATCH), "not bound to one")
        refused(await bridge.delete(f"{PODS}/at-home", {"gracePeriodSeconds": 0}), "not bound to one")
        refused(await bridge.delete(f"{PODS}/spilled", {"gracePeriodSeconds": 0}), "nobody has deleted team/spilled")
        (await admin.delete(f"{PODS}/spilled")).ok()
        (await bridge.delete(f"{PODS}/spilled", {"gracePeriodSeconds": 0})).ok()
        await admin.gone(f"{PODS}/spilled")


@pytest.mark.usefixtures("nodes")
async def test_the_bridge_keeps_leases_of_its_own(plane: ControlPlane) -> None:
    leases = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
    async with acting_as(plane, "bridge") as bridge:
        for namespace, name in (
            ("kube-node-lease", "overspill-one"),
            ("overspill-system", "overspill-bridge-overspill"),
        ):
            (
                await bridge.post(
                    leases.format(namespace), {"metadata": {"name": name}, "spec": {"holderIdentity": "b"}}
                )
            ).ok()
        refused(await bridge.post(leases.format("kube-node-lease"), {"metadata": {"name": "home"}}), "not home")
        stolen = {"metadata": {"name": "overspill-decider"}}
        refused(await bridge.post(leases.format("overspill-system"), stolen), "not overspill-decider")


@pytest.mark.usefixtures("nodes")
async def test_protected_namespaces_are_left_alone(plane: ControlPlane, admin: Api) -> None:
    system = SYSTEM_PODS
    why = "Overspill touches nothing in the namespace kube-system"
    for name in ("one", "two"):
        (await admin.post(system, pod({}, meta={"name": name}, nodeName="overspill-one"))).ok()
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "one", "namespace": "kube-system"}}
    async with acting_as(plane, "evictor") as evictor:
        refused(await evictor.post(f"{system}/one/eviction", eviction), why)
        (await admin.post(PODS, pod({}, meta={"name": "evicted"}))).ok()
        here = eviction | {"metadata": {"name": "evicted", "namespace": "team"}}
        (await evictor.post(f"{PODS}/evicted/eviction", here)).ok()
    # What it may do to pods anywhere else: which of two policies that refuse is told is chance.
    (await admin.post(system, pod(QUEUED, meta={"name": "gated"}, schedulingGates=[GATE]))).ok()
    opened = [{"op": "replace", "path": "/spec/schedulingGates", "value": []}]
    async with acting_as(plane, "admitter") as admitter:
        refused(await admitter.patch(f"{system}/gated", opened, JSON_PATCH), why)
    async with acting_as(plane, "bridge") as bridge:
        refused(await bridge.patch(f"{system}/one", {"metadata": {"annotations": {"a": "b"}}}), why)
        # Like any kubelet it confirms the end of a DaemonSet's pod that somebody deleted.
        (await admin.delete(f"{system}/two")).ok()
        (await bridge.delete(f"{system}/two", {"gracePeriodSeconds": 0})).ok()


@pytest.mark.usefixtures("nodes")
async def test_the_server_finds_no_fault_with_the_policies(admin: Api) -> None:
    """It checks the types of their expressions, and says what it thinks of them in their status."""
    for one in (policy for policy in documents(INSTALL) if policy["kind"] == "ValidatingAdmissionPolicy"):
        url = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{one['metadata']['name']}"
        found = await admin.eventually(url, lambda policy: "typeChecking" in policy.get("status", {}), "types checked")
        assert found["status"]["typeChecking"] == {}, one["metadata"]["name"]


@pytest.mark.usefixtures("nodes")
async def test_nobody_else_is_asked_anything(admin: Api) -> None:
    (await admin.post(NODES, {"metadata": {"name": "anything", "labels": {"a": "b"}}}, dryRun="All")).ok()
    (await admin.patch(f"{NODES}/home", {"spec": {"unschedulable": False}}, dryRun="All")).ok()
