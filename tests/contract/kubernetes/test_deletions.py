"""Deletion: at once or with grace, for one uid, and not before the finalizers are gone."""

from __future__ import annotations

from tests.contract.kubernetes.client import JSON_PATCH, Api
from tests.contract.kubernetes.objects import CONFIG_MAPS, PODS, bind, config_map, pod

OTHER_UID = "11111111-1111-1111-1111-111111111111"


async def _bound(api: Api, namespace: str, node: str, **spec: object) -> str:
    (await api.post(PODS.format(namespace), pod("worker", **spec))).ok()
    await bind(api, namespace, "worker", node)
    return f"{PODS.format(namespace)}/worker"


async def test_a_deleted_object_is_gone_at_once(api: Api, namespace: str) -> None:
    path = f"{CONFIG_MAPS.format(namespace)}/plain"
    (await api.post(CONFIG_MAPS.format(namespace), config_map("plain"))).ok()
    reply = (await api.delete(path)).ok()

    assert (reply["kind"], reply["status"]) == ("Status", "Success")
    (await api.get(path)).refused(404)


async def test_an_unassigned_pod_is_gone_at_once(api: Api, namespace: str) -> None:
    path = f"{PODS.format(namespace)}/free"
    (await api.post(PODS.format(namespace), pod("free"))).ok()
    (await api.delete(path)).ok()
    (await api.get(path)).refused(404)


async def test_an_assigned_pod_is_left_to_its_kubelet(api: Api, namespace: str, nodes) -> None:
    path = await _bound(api, namespace, await nodes.add())
    # From a version on: a watch without one may begin before the binding, and tell of that, too.
    version = (await api.get(path)).ok()["metadata"]["resourceVersion"]
    only = {"fieldSelector": "metadata.name=worker"}
    async with api.watch(PODS.format(namespace), resourceVersion=version, **only) as watch:
        reply = (await api.delete(path)).ok()
        assert reply["metadata"]["deletionTimestamp"]
        assert reply["metadata"]["deletionGracePeriodSeconds"] == 30

        going = await watch.expect("MODIFIED", "worker")
        assert going["metadata"]["deletionTimestamp"]
        assert going["status"]["phase"] == "Pending"
        # The kubelet has stopped the containers, and says so by deleting without grace.
        (await api.delete(path, {"gracePeriodSeconds": 0})).ok()
        await watch.until("DELETED", "worker")
    (await api.get(path)).refused(404)


async def test_the_grace_of_a_deletion_is_the_pods_own_unless_said_otherwise(api: Api, namespace: str, nodes) -> None:
    path = await _bound(api, namespace, await nodes.add(), terminationGracePeriodSeconds=7)
    first = (await api.delete(path)).ok()["metadata"]
    assert first["deletionGracePeriodSeconds"] == 7

    # It may be shortened later, never lengthened.
    assert (await api.delete(path, {"gracePeriodSeconds": 60})).ok()["metadata"]["deletionGracePeriodSeconds"] == 7
    assert (await api.delete(path, {"gracePeriodSeconds": 3})).ok()["metadata"]["deletionGracePeriodSeconds"] == 3


async def test_a_pod_whose_grace_is_zero_is_gone_at_once(api: Api, namespace: str, nodes) -> None:
    path = await _bound(api, namespace, await nodes.add())
    (await api.delete(path, gracePeriodSeconds="0")).ok()
    (await api.get(path)).refused(404)


async def test_a_deletion_meant_for_another_uid_is_a_conflict(api: Api, namespace: str) -> None:
    made = (await api.post(PODS.format(namespace), pod("meant"))).ok()
    path = f"{PODS.format(namespace)}/meant"
    (await api.delete(path, {"preconditions": {"uid": OTHER_UID}})).refused(409, "Conflict")
    (await api.get(path)).ok()
    (await api.delete(path, {"preconditions": {"uid": made["metadata"]["uid"]}})).ok()


async def test_a_deletion_meant_for_another_version_is_a_conflict(api: Api, namespace: str) -> None:
    made = (await api.post(CONFIG_MAPS.format(namespace), config_map("meant"))).ok()
    path = f"{CONFIG_MAPS.format(namespace)}/meant"
    (await api.patch(path, {"data": {"a": "1"}})).ok()
    version = {"preconditions": {"resourceVersion": made["metadata"]["resourceVersion"]}}
    (await api.delete(path, version)).refused(409, "Conflict")
    (await api.get(path)).ok()


async def test_finalizers_hold_an_object_until_they_are_gone(api: Api, namespace: str) -> None:
    path = f"{CONFIG_MAPS.format(namespace)}/held"
    (await api.post(CONFIG_MAPS.format(namespace), config_map("held", finalizers=["overspill.dev/hold"]))).ok()
    (await api.delete(path)).ok()
    going = (await api.get(path)).ok()["metadata"]
    assert going["deletionTimestamp"]
    assert going["finalizers"] == ["overspill.dev/hold"]

    # No new finalizer once it is going; labels and data may still change.
    more = {"metadata": {"finalizers": ["overspill.dev/hold", "overspill.dev/more"]}}
    (await api.patch(path, more)).refused(422, "Invalid")
    (await api.patch(path, {"data": {"a": "1"}})).ok()
    (await api.patch(path, {"metadata": {"finalizers": None}})).ok()
    (await api.get(path)).refused(404)


async def test_each_finalizer_holds_for_itself(api: Api, namespace: str) -> None:
    path, both = f"{CONFIG_MAPS.format(namespace)}/held", ["overspill.dev/one", "overspill.dev/two"]
    (await api.post(CONFIG_MAPS.format(namespace), config_map("held", finalizers=both))).ok()
    async with api.watch(CONFIG_MAPS.format(namespace), fieldSelector="metadata.name=held") as watch:
        await watch.expect("ADDED", "held")
        (await api.delete(path)).ok()
        assert (await watch.expect("MODIFIED", "held"))["metadata"]["deletionTimestamp"]
        (await api.delete(path)).ok()  # asked again: nothing new
        (await api.patch(path, {"metadata": {"finalizers": ["overspill.dev/two"]}})).ok()
        assert (await watch.expect("MODIFIED", "held"))["metadata"]["finalizers"] == ["overspill.dev/two"]
        (await api.patch(path, [{"op": "remove", "path": "/metadata/finalizers/0"}], JSON_PATCH)).ok()
        # The last state that was stored: the finalizer that went last is still told.
        assert (await watch.expect("DELETED", "held"))["metadata"]["finalizers"] == ["overspill.dev/two"]
    (await api.get(path)).refused(404)


async def test_a_finalizer_has_a_name_of_its_owner(api: Api, namespace: str) -> None:
    reply = await api.post(CONFIG_MAPS.format(namespace), config_map("held", finalizers=["nobodys"]))
    causes = reply.refused(422, "Invalid")["details"]["causes"]
    assert [cause["field"] for cause in causes] == ["metadata.finalizers[0]"]


async def test_a_name_is_taken_while_a_finalizer_holds_it(api: Api, namespace: str) -> None:
    path = f"{CONFIG_MAPS.format(namespace)}/held"
    (await api.post(CONFIG_MAPS.format(namespace), config_map("held", finalizers=["overspill.dev/hold"]))).ok()
    taken = (await api.post(CONFIG_MAPS.format(namespace), config_map("held"))).refused(409, "AlreadyExists")
    assert taken["message"] == 'configmaps "held" already exists'
    (await api.delete(path)).ok()
    taken = (await api.post(CONFIG_MAPS.format(namespace), config_map("held"))).refused(409, "AlreadyExists")
    assert taken["message"] == 'object is being deleted: configmaps "held" already exists'
    (await api.patch(path, {"metadata": {"finalizers": None}})).ok()
    (await api.post(CONFIG_MAPS.format(namespace), config_map("held"))).ok()


async def test_an_evicted_pod_waits_for_its_finalizer_too(api: Api, namespace: str, nodes) -> None:
    body = pod("held")
    body["metadata"]["finalizers"] = ["overspill.dev/hold"]
    (await api.post(PODS.format(namespace), body)).ok()
    await bind(api, namespace, "held", await nodes.add())
    path = f"{PODS.format(namespace)}/held"
    eviction = {"metadata": {"name": "held"}, "deleteOptions": {"gracePeriodSeconds": 0}}
    (await api.post(f"{path}/eviction", eviction)).ok()
    assert (await api.get(path)).ok()["metadata"]["deletionTimestamp"]
    (await api.patch(path, {"metadata": {"finalizers": None}})).ok()
    (await api.get(path)).refused(404)


async def test_a_pod_waits_for_both_its_kubelet_and_its_finalizers(api: Api, namespace: str, nodes) -> None:
    body = pod("held")
    body["metadata"]["finalizers"] = ["overspill.dev/hold"]
    (await api.post(PODS.format(namespace), body)).ok()
    await bind(api, namespace, "held", await nodes.add())
    path = f"{PODS.format(namespace)}/held"

    (await api.delete(path)).ok()
    (await api.delete(path, {"gracePeriodSeconds": 0})).ok()
    assert (await api.get(path)).ok()["metadata"]["deletionGracePeriodSeconds"] == 0
    (await api.patch(path, {"metadata": {"finalizers": None}})).ok()
    (await api.get(path)).refused(404)


async def test_a_deleted_namespace_takes_what_is_in_it_along(api: Api, namespace: str) -> None:
    (await api.post(CONFIG_MAPS.format(namespace), config_map("inside"))).ok()
    (await api.delete(f"/api/v1/namespaces/{namespace}")).ok()
    await api.gone(f"{CONFIG_MAPS.format(namespace)}/inside")
    await api.gone(f"/api/v1/namespaces/{namespace}")
