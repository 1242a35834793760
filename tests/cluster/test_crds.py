"""Kueue's kinds on a real API server: the installation's Job defines what is missing and touches nothing that exists.

With the Job's own account, beside definitions as Kueue's own would be; and the admitter waits for the kinds and goes on by
itself.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from overspill_admitter.cluster import Cluster
from overspill_kube.client import Client
from overspill_runtime.clock import SystemClock
from overspill_service import crds
from tests.cluster.controlplane.start import ControlPlane, control_plane
from tests.contract.kubernetes.client import Api, Object, endpoint_of, eventually
from tests.support.deployed import apply, client_as, endpoint_as, kubectl
from tests.support.manifests import INSTALL

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

ACCOUNT = "overspill-crds"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NAMES = [one["metadata"]["name"] for one in crds.definitions()]
FLAVORS, CLUSTER_QUEUES, LOCAL_QUEUES = NAMES
QUEUES = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues"
QUEUE = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "ClusterQueue",
    "metadata": {"name": "gpus"},
    "spec": {"cohort": "all"},
}


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    """An installation whose Jobs have not run, and never will: nothing but the tests changes anything."""
    async with control_plane(controllers=False) as started:
        await apply(started, INSTALL)
        yield started


@pytest.fixture
async def admin(plane: ControlPlane) -> AsyncIterator[Api]:
    async with Api(endpoint_of(plane.kubeconfig)) as api:
        yield api


@pytest.fixture
async def job(plane: ControlPlane, admin: Api, tmp_path: Path) -> AsyncIterator[Client]:
    """The Job's own client, when its rights and the policy about it hold."""
    async with Api(await endpoint_as(plane, ACCOUNT)) as api:
        await eventually(
            lambda: api.post(DEFINITIONS, other(), dryRun="All"),
            lambda reply: reply.status == 422 and ACCOUNT in reply.body["message"],
            "rights and policy of the Job hold",
        )
    async with client_as(plane, ACCOUNT, tmp_path) as client:
        yield client


def other() -> Object:
    """A kind that is none of the three."""
    definition = crds.definitions()[0]
    definition["metadata"]["name"] = "workloads.kueue.x-k8s.io"
    definition["spec"]["names"] = {"kind": "Workload", "plural": "workloads"}
    return definition


def of_kueue(name: str, *versions: str, stored: str) -> Object:
    """A definition in the manner of Kueue's own: its labels, its webhook that converts, and a schema that drops what it does
    not know.
    """
    names = next(one["spec"] for one in crds.definitions() if one["metadata"]["name"] == name)
    spec = {"type": "object", "properties": {"clusterQueue": {"type": "string"}, "cohort": {"type": "string"}}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": {"type": "object"}}}}
    webhook = {"service": {"namespace": "kueue-system", "name": "kueue-webhook-service", "path": "/convert"}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": name,
            "labels": {"app.kubernetes.io/name": "kueue", "control-plane": "controller-manager"},
        },
        "spec": {
            **{key: names[key] for key in ("group", "scope", "names")},
            "conversion": {
                "strategy": "Webhook",
                "webhook": {"clientConfig": webhook, "conversionReviewVersions": ["v1"]},
            },
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": version == stored,
                    "schema": schema,
                    "subresources": {"status": {}},
                }
                for version in versions
            ],
        },
    }


async def established(admin: Api, name: str) -> Object:
    """The definition, when its kind is served and the server has no more to write about it."""

    def holds(one: Object) -> bool:
        conditions = one.get("status", {}).get("conditions") or ()
        found = {condition["type"]: condition["status"] for condition in conditions}
        return found.get("Established") == found.get("NamesAccepted") == "True"

    return await admin.eventually(f"{DEFINITIONS}/{name}", holds, f"{name} is established")


async def test_the_job_defines_what_is_missing_and_leaves_what_exists(admin: Api, job: Client) -> None:
    (await admin.post(DEFINITIONS, of_kueue(LOCAL_QUEUES, "v1beta1", stored="v1beta1"))).ok()
    kueues = await established(admin, LOCAL_QUEUES)

    assert await crds.ensure(job) == {FLAVORS: True, CLUSTER_QUEUES: True, LOCAL_QUEUES: False}
    first = {name: await established(admin, name) for name in NAMES}
    assert first[LOCAL_QUEUES] == kueues
    ours = [name for name, one in first.items() if one["metadata"]["labels"]["app.kubernetes.io/name"] == "overspill"]
    assert ours == [FLAVORS, CLUSTER_QUEUES]
    for name in ours:
        assert {one["manager"] for one in first[name]["metadata"]["managedFields"]} >= {ACCOUNT}
    for version in ("v1beta1", "v1beta2"):
        await admin.eventually(f"/apis/kueue.x-k8s.io/{version}/clusterqueues", lambda _: True, f"{version} is served")

    assert await crds.ensure(job) == dict.fromkeys(NAMES, False)
    assert {name: (await admin.get(f"{DEFINITIONS}/{name}")).ok() for name in NAMES} == first


async def test_the_job_may_not_have_queues_converted_by_a_webhook(plane: ControlPlane, admin: Api, job: Client) -> None:
    """Who holds the Job's token would otherwise read every queue, and say what is in it."""
    async with Api(await endpoint_as(plane, ACCOUNT)) as api:
        converted = of_kueue(LOCAL_QUEUES, "v1beta1", "v1beta2", stored="v1beta2")
        assert "webhook" in (await api.post(DEFINITIONS, converted)).refused(422, "Invalid")["message"]
    assert await crds.ensure(job) == dict.fromkeys(NAMES, True)
    await established(admin, LOCAL_QUEUES)


async def test_the_job_may_define_the_three_and_do_nothing_else(plane: ControlPlane, admin: Api, job: Client) -> None:
    assert await crds.ensure(job) == dict.fromkeys(NAMES, True)
    before = {name: await established(admin, name) for name in NAMES}
    async with Api(await endpoint_as(plane, ACCOUNT)) as api:
        policy = (await api.post(DEFINITIONS, other())).refused(422, "Invalid")["message"]
        assert "the Job overspill-crds may define the kinds of Kueue that the admitter reads only" in policy
        assert "workloads.kueue.x-k8s.io" in policy
        (await api.get(DEFINITIONS)).refused(403, "Forbidden")
        for name in NAMES:
            path = f"{DEFINITIONS}/{name}"
            (await api.get(path)).refused(403, "Forbidden")
            (await api.put(path, before[name])).refused(403, "Forbidden")
            (await api.patch(path, {"metadata": {"labels": {"a": "b"}}})).refused(403, "Forbidden")
            (await api.delete(path)).refused(403, "Forbidden")
    assert {name: (await admin.get(f"{DEFINITIONS}/{name}")).ok() for name in NAMES} == before
    # The policy is about nobody but the Job.
    (await admin.post(DEFINITIONS, other())).ok()


async def test_a_later_kueue_takes_the_definitions_over(
    plane: ControlPlane, admin: Api, job: Client, tmp_path: Path
) -> None:
    """As docs/install.md says: by force, for the fields are the Job's; the queues stay, and so does what Kueue made."""
    await crds.ensure(job)
    for name in NAMES:
        await established(admin, name)
    await admin.eventually(QUEUES, lambda _: True, "queues may be made")
    (await admin.post(QUEUES, QUEUE)).ok()

    early = _write(tmp_path / "early.json", of_kueue(CLUSTER_QUEUES, "v1beta1", stored="v1beta1"))
    with pytest.raises(AssertionError, match=r"must remain in spec\.versions"):
        await kubectl("apply", "--server-side", "--force-conflicts", "-f", early, kubeconfig=plane.kubeconfig)
    late = _write(tmp_path / "late.json", of_kueue(CLUSTER_QUEUES, "v1beta1", "v1beta2", stored="v1beta2"))
    with pytest.raises(AssertionError, match=f'conflicts with "{ACCOUNT}"'):
        await kubectl("apply", "--server-side", "-f", late, kubeconfig=plane.kubeconfig)
    await kubectl("apply", "--server-side", "--force-conflicts", "-f", late, kubeconfig=plane.kubeconfig)
    taken = await established(admin, CLUSTER_QUEUES)
    assert taken["spec"]["conversion"]["strategy"] == "Webhook"
    assert "x-kubernetes-preserve-unknown-fields" not in json.dumps(taken["spec"])
    assert (await admin.get(f"{QUEUES}/gpus")).ok()["spec"] == {"cohort": "all"}

    assert await crds.ensure(job) == dict.fromkeys(NAMES, False)
    assert (await admin.get(f"{DEFINITIONS}/{CLUSTER_QUEUES}")).ok() == taken
    # The label by which ours are removed is Kueue's by now.
    removing = ("delete", "crd", "-l", "app.kubernetes.io/name=overspill")
    assert CLUSTER_QUEUES not in await kubectl(*removing, kubeconfig=plane.kubeconfig)
    assert (await admin.get(f"{QUEUES}/gpus")).ok()
    await admin.gone(f"{DEFINITIONS}/{FLAVORS}")


async def test_the_admitter_waits_for_the_kinds_and_goes_on_by_itself(
    plane: ControlPlane, admin: Api, job: Client, tmp_path: Path
) -> None:
    """It says what is missing until all three are served, in whichever order they come."""
    async with client_as(plane, "overspill-admitter", tmp_path) as client:
        cluster = Cluster(client, SystemClock(), resource="nvidia.com/gpu")
        async with asyncio.TaskGroup() as group:
            finding = group.create_task(cluster.find_queues())
            assert ACCOUNT in await _told(cluster, "kueue.x-k8s.io is not served")
            definition = next(one for one in crds.definitions() if one["metadata"]["name"] == CLUSTER_QUEUES)
            (await admin.post(DEFINITIONS, definition)).ok()
            await finding
            following = group.create_task(cluster.run())
            await _told(cluster, "localqueues: ")
            assert await crds.ensure(job) == {FLAVORS: True, CLUSTER_QUEUES: False, LOCAL_QUEUES: True}
            await _told(cluster, None)
            await cluster.wait_synced()
            (await admin.post(QUEUES, QUEUE)).ok()
            await _until(lambda: cluster.cluster_queues.get("", "gpus"), bool, "the admitter sees a queue")
            following.cancel()


async def _told(cluster: Cluster, beginning: str | None) -> str:
    """What hinders the admitter, once it is this; None: nothing does."""

    def holds(told: str | None) -> bool:
        return told is None if beginning is None else told is not None and told.startswith(beginning)

    return await _until(cluster.why_not_synced, holds, f"the admitter says {beginning}") or ""


async def _until(look: Any, holds: Any, what: str) -> Any:
    async def read() -> Any:
        return look()

    return await eventually(read, holds, what)


def _write(path: Path, document: Object) -> str:
    path.write_text(json.dumps(document))
    return str(path)
