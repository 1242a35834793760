"""Installing deploy/ on a real API server: every overlay is taken strictly, a second time changes nothing.

install.yaml is what kustomize renders; the Jobs of the installation do their work with their own accounts.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from overspill_bus.permissions import users
from overspill_service import credentials
from tests.cluster.controlplane.start import ControlPlane, control_plane
from tests.contract.kubernetes.client import Api, Object, endpoint_of, eventually
from tests.support.deployed import SYSTEM, apply, client_as, endpoint_as, kubectl, render
from tests.support.manifests import DEPLOY, INSTALL, name_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

# kubectl apply -k applies from the client's side. `before-1.36` is production with less, see below.
WAYS = [("production", "client"), ("production", "server"), ("local", "client")]
HA = """
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [{base}]
components: [{component}]
"""


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    """Without controllers: nothing but what is applied changes anything."""
    async with control_plane(controllers=False) as started:
        yield started


@pytest.fixture
async def admin(plane: ControlPlane) -> AsyncIterator[Api]:
    async with Api(endpoint_of(plane.kubeconfig)) as api:
        yield api


async def rendered(folder: Path, into: Path) -> tuple[Path, list[Object]]:
    text = await render(folder)
    await asyncio.to_thread(into.write_text, text)
    return into, [one for one in yaml.load_all(text, yaml.CSafeLoader) if one is not None]


async def versions(plane: ControlPlane, file: Path) -> dict[str, str]:
    """resourceVersion of every object of a file, as the server has it now."""
    found = json.loads(await kubectl("get", "-f", str(file), "-o", "json", kubeconfig=plane.kubeconfig))["items"]
    return {name_of(one): one["metadata"]["resourceVersion"] for one in found}


async def test_install_yaml_is_what_kustomize_renders() -> None:
    text = INSTALL.read_text()
    head, _, body = text.partition("\n")
    assert head.startswith("# kubectl apply -f deploy/install.yaml")
    assert body == await render(DEPLOY), "render it anew: (head -1 deploy/install.yaml; kubectl kustomize deploy)"


@pytest.mark.parametrize(("overlay", "way"), WAYS)
async def test_applied_twice_it_changes_nothing(plane: ControlPlane, tmp_path: Path, overlay: str, way: str) -> None:
    file, wanted = await rendered(DEPLOY / "overlays" / overlay, tmp_path / "all.yaml")
    options = ("--server-side",) if way == "server" else ()
    first = await apply(plane, file, *options)
    assert len(first) == len(wanted)
    before = await versions(plane, file)
    assert set(before) == {name_of(one) for one in wanted}
    await apply(plane, file, *options)
    after = await versions(plane, file)
    # kubectl calls budgets and the StatefulSet "configured" each time: its patch is not empty, and changes nothing.
    assert await kubectl("diff", "-f", str(file), kubeconfig=plane.kubeconfig) == ""
    if way == "server":
        # The first server-side apply of a new claim is a write that changes nothing in it (seen on 1.37.2).
        await apply(plane, file, *options)
        claims = {name for name in after if name.startswith("PersistentVolumeClaim/")}
        again = await versions(plane, file)
        assert {name: again[name] for name in claims} == {name: after[name] for name in claims}
        after |= {name: before[name] for name in claims}
    assert after == before


async def test_three_nats_servers(plane: ControlPlane, tmp_path: Path) -> None:
    """An installation with one becomes one with three by the component, nothing is to be deleted."""
    single, _ = await rendered(DEPLOY, tmp_path / "one.yaml")
    await apply(plane, single)
    folder = tmp_path / "ha"
    folder.mkdir()
    base, component = (_up(folder, DEPLOY / one) for one in ("overlays/production", "components/nats-ha"))
    (folder / "kustomization.yaml").write_text(HA.format(base=base, component=component))
    file, wanted = await rendered(folder, tmp_path / "three.yaml")
    objects = {name_of(one): one for one in wanted}
    assert objects["StatefulSet/overspill-system/nats"]["spec"]["replicas"] == 3
    assert objects["PodDisruptionBudget/overspill-system/nats"]["spec"]["maxUnavailable"] == 1
    config = next(
        one["data"] for name, one in objects.items() if name.startswith("ConfigMap/overspill-system/nats-config")
    )
    assert "routes" in config["cluster.conf"]
    streams = next(one["data"] for name, one in objects.items() if "topology-settings" in name)
    assert streams["OVERSPILL_TOPOLOGY_REPLICAS"] == "3"
    # Other settings are another pod, which a Job does not take: it is deleted first, as its file says.
    await kubectl("delete", "job", "overspill-topology", "-n", "overspill-system", kubeconfig=plane.kubeconfig)
    await apply(plane, file)


def _up(start: Path, target: Path) -> str:
    """A relative path: kustomize takes no absolute ones."""
    return str(Path(*[".."] * (len(start.resolve().parts) - 1), *target.resolve().parts[1:]))


async def test_before_1_36_only_the_mutating_policies_are_missing(tmp_path: Path) -> None:
    _, whole = await rendered(DEPLOY, tmp_path / "whole.yaml")
    _, older = await rendered(DEPLOY / "overlays/before-1.36", tmp_path / "older.yaml")
    missing = {one["kind"] for one in whole} - {one["kind"] for one in older}
    assert missing == {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"}
    assert {name_of(one) for one in older} == {name_of(one) for one in whole if one["kind"] not in missing}


async def test_the_credentials_job_makes_what_is_missing_and_keeps_the_rest(
    plane: ControlPlane, admin: Api, tmp_path: Path
) -> None:
    await apply(plane, INSTALL)
    secrets = f"{SYSTEM}/secrets"
    everybody = [f"overspill-nats-{user.name}" for user in users()]
    async with Api(await endpoint_as(plane, "overspill-credentials")) as job:
        # The server takes roles up by itself.
        await eventually(
            lambda: job.post(secrets, {"metadata": {"name": everybody[0]}}, dryRun="All"),
            lambda reply: reply.status == 201,
            "the rights of the Job hold",
        )
    async with client_as(plane, "overspill-credentials", tmp_path) as client:
        assert await credentials.ensure(client, "overspill-system") == dict.fromkeys(everybody, True)
        before = {name: (await admin.get(f"{secrets}/{name}")).ok() for name in everybody}
        assert len({one["data"]["password"] for one in before.values()}) == len(everybody)
        (await admin.delete(f"{secrets}/overspill-nats-bridge")).ok()
        again = await credentials.ensure(client, "overspill-system")
    assert [name for name, was_made in again.items() if was_made] == ["overspill-nats-bridge"]
    for name in set(everybody) - {"overspill-nats-bridge"}:
        assert (await admin.get(f"{secrets}/{name}")).ok() == before[name]
    async with Api(await endpoint_as(plane, "overspill-credentials")) as job:
        (await job.get(f"{secrets}/overspill-nats-bridge")).refused(403, "Forbidden")


async def test_the_servers_pods_are_taken_as_restricted(tmp_path: Path) -> None:
    """Every pod of every workload is created as its controller would, in the namespace that enforces the profile."""
    async with control_plane() as plane, Api(endpoint_of(plane.kubeconfig)) as admin:
        file, wanted = await rendered(DEPLOY / "overlays/local", tmp_path / "all.yaml")
        await apply(plane, file)
        workloads = [one for one in wanted if one["kind"] in {"Deployment", "StatefulSet", "Job"}]
        await admin.eventually(f"{SYSTEM}/serviceaccounts/default", bool, "an account for pods")
        for one in workloads:
            template = one["spec"]["template"]
            spec = template["spec"]
            for claim in one["spec"].get("volumeClaimTemplates", ()):
                name = claim["metadata"]["name"]
                spec["volumes"].append({"name": name, "persistentVolumeClaim": {"claimName": f"{name}-0"}})
            body = {
                "metadata": {"name": one["metadata"]["name"], "labels": template["metadata"]["labels"]},
                "spec": spec,
            }
            (await admin.post(f"{SYSTEM}/pods", body, dryRun="All")).ok()
        naked = {"metadata": {"name": "naked"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        assert "restricted" in (await admin.post(f"{SYSTEM}/pods", naked, dryRun="All")).refused(403)["message"]
