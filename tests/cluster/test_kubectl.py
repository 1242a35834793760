"""kubectl's verbs on the real control plane and on the lab: people and scripts must not notice the difference.

A real kubectl comes with the control plane's programs, which is why the lab's side is here too and not among the tests
that need no Go. Kubelets are the lab's on both sides. What the lab does not do, it refuses in words that say so.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.cluster.controlplane.build import binaries
from tests.contract.kubernetes.client import Api, Endpoint, Object, eventually
from tests.contract.kubernetes.conftest import api, endpoint, lab_part, namespace
from tests.contract.kubernetes.objects import BUDGETS, NODES, PODS, budget, kill, scheduler_knows, unique

__all__ = ["api", "endpoint", "namespace"]
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]  # kubectl is called a dozen times and more

LAB_ALONE = pytest.mark.parametrize("endpoint", ["lab"], indirect=True)
ON_LAB_NODES = {"app.kubernetes.io/managed-by": "overspill-lab"}


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a run of kubectl said."""

    code: int
    out: str
    err: str

    def ok(self) -> str:
        """The output of a run that must have worked."""
        assert self.code == 0, f"{self.code}: {self.out}{self.err}"
        return self.out

    def failed(self) -> str:
        """The words of a run that must not have worked, and that must have come to an orderly end."""
        assert self.code == 1, f"{self.code}: {self.out}{self.err}"
        return self.err


@dataclass(frozen=True, kw_only=True)
class Kubectl:
    """kubectl for one server, in one namespace."""

    folder: Path
    namespace: str = "default"

    async def __call__(self, *arguments: str, stdin: str = "") -> Said:
        """Run it."""
        process = await asyncio.create_subprocess_exec(
            str(binaries().kubectl),
            f"--kubeconfig={self.folder / 'kubeconfig'}",
            f"--cache-dir={self.folder / 'cache'}",
            f"--namespace={self.namespace}",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"HOME": str(self.folder), "PATH": "/usr/bin:/bin"},
        )
        try:
            out, err = await process.communicate(stdin.encode())
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        assert process.returncode is not None
        return Said(code=process.returncode, out=out.decode(), err=err.decode())

    async def json(self, *arguments: str) -> Any:
        """Run it with `-o json`; what it printed."""
        return json.loads((await self(*arguments, "-o", "json")).ok())


def _kubeconfig(target: Endpoint) -> Object:
    cluster = {"server": target.url, **({"certificate-authority": target.ca_file} if target.ca_file else {})}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "overspill-test", "cluster": cluster}],
        "users": [{"name": "admin", "user": {"token": target.token}}],
        "contexts": [{"name": "overspill-test", "context": {"cluster": "overspill-test", "user": "admin"}}],
        "current-context": "overspill-test",
    }


@pytest_asyncio.fixture
async def machines(api: Api, endpoint: Endpoint, tmp_path: Path) -> AsyncIterator[list[str]]:
    """Two nodes whose kubelets run whatever is bound to them."""
    (tmp_path / "kubeconfig").write_text(json.dumps(_kubeconfig(endpoint)))
    names = [unique("machine") for _ in range(2)]
    listed = [{"name": name, "cpu": "8", "memory": "32Gi", "gpus": 8} for name in names]
    (tmp_path / "nodes.json").write_text(json.dumps(listed))
    arguments = ("--kubeconfig", str(tmp_path / "kubeconfig"), "--nodes", str(tmp_path / "nodes.json"))
    with lab_part(str(tmp_path), "kubelets", *arguments, "--start-seconds", "0.1", "--stop-seconds", "0.1"):
        for name in names:
            ready = lambda seen: not seen["spec"].get("taints") and seen["status"].get("conditions")  # noqa: E731
            await api.eventually(f"{NODES}/{name}", ready, f"{name} is ready")
        yield names
    for name in names:
        await kill(api, f"{NODES}/{name}")


@pytest.fixture
def kubectl(machines: list[str], namespace: str, tmp_path: Path) -> Kubectl:
    """kubectl in the test's own namespace; there are nodes that run pods."""
    return Kubectl(folder=tmp_path, namespace=namespace)


def _web(replicas: int = 2, image: str = "one", **labels: str) -> str:
    container = {"name": "main", "image": image, "resources": {"requests": {"cpu": "10m"}}}
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [container], "nodeSelector": ON_LAB_NODES, "terminationGracePeriodSeconds": 1},
    }
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    metadata = {"name": "web", "labels": labels}
    return json.dumps({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})


async def _rolled_out(kubectl: Kubectl, **members: Any) -> None:
    (await kubectl("apply", "-f", "-", stdin=_web(**members))).ok()
    out = (await kubectl("rollout", "status", "deployment/web", "--timeout=45s")).ok()
    assert 'deployment "web" successfully rolled out' in out


async def _pods(kubectl: Kubectl) -> list[Object]:
    listed = await kubectl.json("get", "pods", "-l", "app=web")
    return [each for each in listed["items"] if "deletionTimestamp" not in each["metadata"]]


async def test_get_shows_tables_documents_and_columns(kubectl: Kubectl, machines: list[str]) -> None:
    await _rolled_out(kubectl)
    header, *rows = (await kubectl("get", "pods", "-o", "wide")).ok().splitlines()
    assert header.split()[:5] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert all(row.split()[1:3] == ["1/1", "Running"] and row.split()[6] in machines for row in rows)
    assert (await kubectl("get", "deployment,rs,pods", "-o", "name")).ok().count("web") == 4
    columns = (await kubectl("get", "nodes", "-l", "overspill=no", "-o", "custom-columns=N:.metadata.name")).ok()
    assert columns.split() == ["N"]
    assert "2/2" in (await kubectl("get", "deployment", "web")).ok()
    assert 'deployments.apps "nothing" not found' in (await kubectl("get", "deployment", "nothing")).failed()
    assert "the server doesn't have a resource type" in (await kubectl("get", "nonsense")).failed()


async def test_describe_tells_of_pods_nodes_and_deployments(
    api: Api, kubectl: Kubectl, machines: list[str], namespace: str
) -> None:
    await _rolled_out(kubectl, replicas=1)
    (pod,) = await _pods(kubectl)
    involved = {"kind": "Pod", "namespace": namespace, **{key: pod["metadata"][key] for key in ("name", "uid")}}
    event = {"metadata": {"name": "spilled"}, "involvedObject": involved, "reason": "Spilled", "type": "Normal"}
    (await api.post(f"/api/v1/namespaces/{namespace}/events", {**event, "message": "there is no room at home"})).ok()

    text = (await kubectl("describe", "pod", pod["metadata"]["name"])).ok()
    for words in (
        "Status:           Running",
        "Controlled By:  ReplicaSet/web-",
        "Spilled",
        "there is no room at home",
    ):
        assert words in text
    text = (await kubectl("describe", "node", pod["spec"]["nodeName"])).ok()
    for words in ("Ready            True", "nvidia.com/gpu", pod["metadata"]["name"], "Unschedulable:      false"):
        assert words in text
    text = (await kubectl("describe", "deployment", "web")).ok()
    assert "1 desired | 1 updated | 1 total | 1 available | 0 unavailable" in text
    assert "NewReplicaSet:   web-" in text


async def test_apply_makes_changes_and_takes_away_what_was_left_out(kubectl: Kubectl) -> None:
    assert "deployment.apps/web created" in (await kubectl("apply", "-f", "-", stdin=_web(tier="a", zone="b"))).ok()
    assert "deployment.apps/web unchanged" in (await kubectl("apply", "-f", "-", stdin=_web(tier="a", zone="b"))).ok()
    (await kubectl("label", "deployment/web", "own=kept")).ok()
    assert "configured" in (await kubectl("apply", "-f", "-", stdin=_web(replicas=3, image="two", tier="c"))).ok()
    seen = await kubectl.json("get", "deployment", "web")
    assert seen["metadata"]["labels"] == {"tier": "c", "own": "kept"}
    assert (seen["spec"]["replicas"], seen["spec"]["template"]["spec"]["containers"][0]["image"]) == (3, "two")
    assert (await kubectl("diff", "-f", "-", stdin=_web(replicas=3, image="two", tier="c"))).ok() == ""
    (await kubectl("apply", "--dry-run=server", "-f", "-", stdin=_web(replicas=9))).ok()
    assert (await kubectl.json("get", "deployment", "web"))["spec"]["replicas"] == 3


async def test_apply_refuses_what_the_server_refuses(kubectl: Kubectl) -> None:
    wrong = json.loads(_web())
    wrong["spec"]["selector"]["matchLabels"]["app"] = "other"
    assert "spec.template.metadata.labels" in (await kubectl("apply", "-f", "-", stdin=json.dumps(wrong))).failed()


async def test_delete_waits_until_the_object_is_gone(kubectl: Kubectl) -> None:
    await _rolled_out(kubectl)
    before = {each["metadata"]["name"] for each in await _pods(kubectl)}
    name = min(before)
    assert f'pod "{name}" deleted' in (await kubectl("delete", "pod", name, "--timeout=45s")).ok()
    assert "not found" in (await kubectl("get", "pod", name)).failed()
    # Only of dependents that it has heard of can the collector know to wait for them.
    (await kubectl("rollout", "status", "deployment/web", "--timeout=45s")).ok()
    (await kubectl("delete", "deployment", "web", "--cascade=foreground", "--timeout=45s")).ok()
    assert (await kubectl.json("get", "deployments,rs,pods"))["items"] == []
    assert "not found" in (await kubectl("delete", "deployment", "web")).failed()
    (await kubectl("delete", "deployment", "web", "--ignore-not-found")).ok()


async def test_scale_changes_the_number_only_if_it_is_what_one_thinks(kubectl: Kubectl) -> None:
    await _rolled_out(kubectl, replicas=1)
    (await kubectl("scale", "deployment/web", "--current-replicas=1", "--replicas=3", "--timeout=45s")).ok()
    (await kubectl("rollout", "status", "deployment/web", "--timeout=45s")).ok()
    assert len(await _pods(kubectl)) == 3
    (await kubectl("scale", "deployment/web", "--current-replicas=1", "--replicas=5")).failed()
    (await kubectl("scale", "deployment/web", "--replicas=0")).ok()
    await eventually(lambda: _pods(kubectl), lambda pods: not pods, "no pod is left")


async def test_rollouts_restart_pause_and_go_back(kubectl: Kubectl) -> None:
    await _rolled_out(kubectl)
    first = {each["metadata"]["uid"] for each in await _pods(kubectl)}
    (await kubectl("rollout", "restart", "deployment/web")).ok()
    (await kubectl("rollout", "status", "deployment/web", "--timeout=45s")).ok()
    assert not first & {each["metadata"]["uid"] for each in await _pods(kubectl)}

    (await kubectl("rollout", "pause", "deployment/web")).ok()
    (await kubectl("set", "image", "deployment/web", "main=two")).ok()
    (await kubectl("rollout", "resume", "deployment/web")).ok()
    (await kubectl("rollout", "status", "deployment/web", "--timeout=45s")).ok()
    assert {each["spec"]["containers"][0]["image"] for each in await _pods(kubectl)} == {"two"}
    history = (await kubectl("rollout", "history", "deployment/web")).ok()
    assert [line.split()[0] for line in history.splitlines()[2:] if line] == ["1", "2", "3"]
    (await kubectl("rollout", "undo", "deployment/web")).ok()
    (await kubectl("rollout", "status", "deployment/web", "--timeout=45s")).ok()
    assert {each["spec"]["containers"][0]["image"] for each in await _pods(kubectl)} == {"one"}
    (await kubectl("wait", "--for=condition=Available", "deployment/web", "--timeout=45s")).ok()


async def test_cordon_keeps_pods_off_a_node(api: Api, kubectl: Kubectl, machines: list[str], namespace: str) -> None:
    assert f"node/{machines[0]} cordoned" in (await kubectl("cordon", machines[0])).ok()
    assert "Ready,SchedulingDisabled" in (await kubectl("get", "node", machines[0])).ok()
    await scheduler_knows(api, namespace, machines[0])
    await _rolled_out(kubectl, replicas=4)
    assert {each["spec"]["nodeName"] for each in await _pods(kubectl)} == {machines[1]}
    (await kubectl("uncordon", machines[0])).ok()
    assert "SchedulingDisabled" not in (await kubectl("get", "node", machines[0])).ok()


async def test_drain_moves_pods_as_their_budget_allows(
    api: Api, kubectl: Kubectl, machines: list[str], namespace: str
) -> None:
    (await kubectl("cordon", machines[1])).ok()
    await scheduler_knows(api, namespace, machines[1])
    await _rolled_out(kubectl, replicas=3)
    (await kubectl("uncordon", machines[1])).ok()
    (await api.post(BUDGETS.format(namespace), budget("keep", {"app": "web"}, minAvailable=2))).ok()
    await api.eventually(
        f"{BUDGETS.format(namespace)}/keep",
        lambda seen: seen["status"].get("disruptionsAllowed") == 1,
        "the budget allows one",
    )
    # Draining cordons by itself, and a moment later the first pod is made again, maybe before the scheduler knows.
    (await kubectl("cordon", machines[0])).ok()
    await scheduler_knows(api, namespace, machines[0])
    out = (await kubectl("drain", machines[0], "--ignore-daemonsets", "--timeout=60s")).ok()
    assert f"node/{machines[0]} drained" in out
    (await kubectl("rollout", "status", "deployment/web", "--timeout=45s")).ok()
    assert {each["spec"]["nodeName"] for each in await _pods(kubectl)} == {machines[1]}


async def test_drain_gives_up_where_no_budget_allows_it(
    api: Api, kubectl: Kubectl, machines: list[str], namespace: str
) -> None:
    (await kubectl("cordon", machines[1])).ok()
    await scheduler_knows(api, namespace, machines[1])
    await _rolled_out(kubectl, replicas=1)
    (await api.post(BUDGETS.format(namespace), budget("keep", {"app": "web"}, minAvailable=1))).ok()
    words = (await kubectl("drain", machines[0], "--ignore-daemonsets", "--timeout=7s")).failed()
    assert "Cannot evict pod as it would violate the pod's disruption budget" in words
    (pod,) = await _pods(kubectl)
    assert pod["spec"]["nodeName"] == machines[0]


async def test_drain_asks_before_it_takes_a_pod_that_nobody_makes_again(
    api: Api, kubectl: Kubectl, machines: list[str], namespace: str
) -> None:
    (await kubectl("run", "alone", "--image=none", f"--overrides={_on(machines[0])}")).ok()
    path = f"{PODS.format(namespace)}/alone"
    await api.eventually(path, lambda seen: seen["status"]["phase"] == "Running", "the pod runs")
    words = (await kubectl("drain", machines[0], "--ignore-daemonsets", "--timeout=10s")).failed()
    assert "declare no controller" in words
    (await kubectl("drain", machines[0], "--ignore-daemonsets", "--force", "--timeout=45s")).ok()
    await api.gone(path)


def _on(machine: str) -> str:
    spec = {"nodeSelector": {"kubernetes.io/hostname": machine}, "terminationGracePeriodSeconds": 1}
    return json.dumps({"apiVersion": "v1", "spec": spec})


async def test_labels_annotations_taints_and_patches(kubectl: Kubectl, machines: list[str]) -> None:
    node = f"node/{machines[0]}"
    (await kubectl("label", node, "rack=7")).ok()
    (await kubectl("annotate", node, "note=hello")).ok()
    (await kubectl("taint", "node", machines[0], "k=v:NoSchedule")).ok()
    seen = await kubectl.json("get", node)
    assert (seen["metadata"]["labels"]["rack"], seen["metadata"]["annotations"]["note"]) == ("7", "hello")
    assert seen["spec"]["taints"] == [{"key": "k", "value": "v", "effect": "NoSchedule"}]
    (await kubectl("taint", "node", machines[0], "k-")).ok()
    for kind, body in (
        ("merge", {"metadata": {"labels": {"rack": "8"}}}),
        ("strategic", {"metadata": {"labels": {"row": "1"}}}),
        ("json", [{"op": "remove", "path": "/metadata/labels/row"}]),
    ):
        (await kubectl("patch", node, f"--type={kind}", "-p", json.dumps(body))).ok()
    seen = await kubectl.json("get", node)
    assert seen["metadata"]["labels"]["rack"] == "8"
    assert "row" not in seen["metadata"]["labels"]
    assert not seen["spec"].get("taints")


async def test_logs_and_exec_need_a_machine_that_is_there(kubectl: Kubectl) -> None:
    """Nobody listens behind these nodes, on either side; kubectl says so and ends."""
    await _rolled_out(kubectl, replicas=1)
    (pod,) = await _pods(kubectl)
    for words in (("logs", pod["metadata"]["name"]), ("exec", pod["metadata"]["name"], "--", "true")):
        assert "rror" in (await kubectl(*words)).failed()


@LAB_ALONE
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("apply", "--server-side", "-f", "-"), "the lab does not do server-side apply"),
        (("logs", "web"), "the lab does not serve"),
        (("exec", "web", "--", "true"), "the lab does not serve"),
        (("port-forward", "web", "8080"), "the lab does not serve"),
        (("debug", "web", "--image=none"), "the lab does not serve"),
        (("create", "deployment", "other", "--image=none"), "protobuf, which the lab does not speak"),
        (("get", "statefulsets"), "the server doesn't have a resource type"),
        (("auth", "can-i", "get", "pods"), "the lab does not serve"),
        (("explain", "pods"), "not found"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
async def test_the_lab_says_what_it_does_not_do(
    api: Api, kubectl: Kubectl, namespace: str, words: tuple[str, ...], why: str
) -> None:
    (await kubectl("run", "web", "--image=none")).ok()
    await api.eventually(
        f"{PODS.format(namespace)}/web", lambda seen: seen["status"]["phase"] == "Running", "the pod runs"
    )
    assert why in (await kubectl(*words, stdin=_web())).failed()
