"""Owner references: dependents go with their owner, and only with all of them."""

from __future__ import annotations

from tests.contract.kubernetes.client import Api, Object, eventually
from tests.contract.kubernetes.objects import CONFIG_MAPS, PODS, REPLICA_SETS, config_map, pod, replica_set


def _owned(body: Object, *owners: Object) -> Object:
    body["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": each["metadata"]["name"], "uid": each["metadata"]["uid"]}
        for each in owners
    ]
    return body


async def _owner(api: Api, namespace: str, name: str) -> Object:
    return (await api.post(CONFIG_MAPS.format(namespace), config_map(name))).ok()


async def _seen_by_the_collector(api: Api, namespace: str) -> None:
    """Wait until the garbage collector has heard of every pod there is: it collects one that was made now.

    It learns of owners and dependents by a watch for each kind, and may hear of an owner's end first.
    """
    ghost = {"metadata": {"name": "ghost", "uid": "11111111-1111-1111-1111-111111111111"}}
    (await api.post(PODS.format(namespace), _owned(pod("lost"), ghost))).ok()
    await api.gone(f"{PODS.format(namespace)}/lost")


async def test_a_dependent_goes_after_its_owner(api: Api, namespace: str) -> None:
    owner = await _owner(api, namespace, "owner")
    (await api.post(CONFIG_MAPS.format(namespace), _owned(config_map("owned"), owner))).ok()
    (await api.post(PODS.format(namespace), _owned(pod("owned"), owner))).ok()
    (await api.delete(f"{CONFIG_MAPS.format(namespace)}/owner")).ok()

    await api.gone(f"{CONFIG_MAPS.format(namespace)}/owned")
    await api.gone(f"{PODS.format(namespace)}/owned")


async def test_a_dependent_of_two_goes_with_the_second(api: Api, namespace: str) -> None:
    path = CONFIG_MAPS.format(namespace)
    one, two = await _owner(api, namespace, "one"), await _owner(api, namespace, "two")
    (await api.post(path, _owned(config_map("owned"), one, two))).ok()
    (await api.delete(f"{path}/one")).ok()
    seen = await api.eventually(
        f"{path}/owned",
        lambda each: [owner["name"] for owner in each["metadata"]["ownerReferences"]] == ["two"],
        "the reference to the owner that has gone is dropped",
    )
    assert "deletionTimestamp" not in seen["metadata"]

    (await api.delete(f"{path}/two")).ok()
    await api.gone(f"{path}/owned")


async def test_a_dependent_of_an_owner_that_never_was_goes(api: Api, namespace: str) -> None:
    ghost = {"metadata": {"name": "ghost", "uid": "11111111-1111-1111-1111-111111111111"}}
    (await api.post(CONFIG_MAPS.format(namespace), _owned(config_map("owned"), ghost))).ok()
    await api.gone(f"{CONFIG_MAPS.format(namespace)}/owned")


async def test_an_owner_of_the_same_name_made_again_is_not_the_owner(api: Api, namespace: str) -> None:
    owner = await _owner(api, namespace, "owner")
    (await api.delete(f"{CONFIG_MAPS.format(namespace)}/owner")).ok()
    await _owner(api, namespace, "owner")
    (await api.post(CONFIG_MAPS.format(namespace), _owned(config_map("owned"), owner))).ok()
    await api.gone(f"{CONFIG_MAPS.format(namespace)}/owned")


async def test_orphans_stay_when_their_owner_goes_without_them(api: Api, namespace: str) -> None:
    (await api.post(REPLICA_SETS.format(namespace), replica_set("parent", 1))).ok()
    children = await eventually(
        lambda: api.get(PODS.format(namespace), labelSelector="app=parent"),
        lambda reply: len(reply.ok()["items"]) == 1,
        "the ReplicaSet makes its pod",
    )
    (child,) = children.body["items"]
    await _seen_by_the_collector(api, namespace)
    parent = f"{REPLICA_SETS.format(namespace)}/parent"
    (await api.delete(parent, {"propagationPolicy": "Orphan"})).ok()
    await api.gone(parent)

    seen = (await api.get(f"{PODS.format(namespace)}/{child['metadata']['name']}")).ok()
    assert seen["metadata"]["uid"] == child["metadata"]["uid"]
    assert not seen["metadata"].get("ownerReferences")


async def test_a_foreground_deletion_waits_for_the_dependents(api: Api, namespace: str) -> None:
    path = CONFIG_MAPS.format(namespace)
    owner = await _owner(api, namespace, "owner")
    held = _owned(config_map("owned", finalizers=["overspill.dev/hold"]), owner)
    held["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] = True
    (await api.post(path, held)).ok()
    (await api.delete(f"{path}/owner", {"propagationPolicy": "Foreground"})).ok()
    await api.eventually(
        f"{path}/owned", lambda each: "deletionTimestamp" in each["metadata"], "the dependent is deleted first"
    )
    assert (await api.get(f"{path}/owner")).ok()["metadata"]["finalizers"] == ["foregroundDeletion"]

    (await api.patch(f"{path}/owned", {"metadata": {"finalizers": None}})).ok()
    await api.gone(f"{path}/owner")
