"""Reads, writes and typed outcomes against an API server."""

import pytest

from overspill_kube.client import Client, PatchKind
from overspill_kube.errors import KubeError
from overspill_kube.outcomes import AlreadyExists, Conflict, Done, Invalid, NotFound, Replaced
from overspill_kube.resources import CLUSTER_QUEUES, CONFIG_MAPS, KUEUE_VERSIONS, PODS, RESOURCE_FLAVORS, Resource
from overspill_objects.core import ConfigMap
from tests.support.kube_place import Place, done, pod_body, unique

OTHER_UID = "00000000-0000-4000-8000-000000000000"


async def test_get_is_none_only_for_an_object_that_is_not_there(client: Client, place: Place) -> None:
    await place.create(CONFIG_MAPS, {"metadata": {"name": "here"}, "data": {"a": "1"}})
    found = await client.get(CONFIG_MAPS, "here", place.namespace)
    assert found is not None
    assert found.data == {"a": "1"}
    assert await client.get(CONFIG_MAPS, "absent", place.namespace) is None


async def test_a_kind_that_is_not_served_is_an_error_and_not_an_absence(client: Client) -> None:
    strange = Resource(
        group="nobody.example.com", version="v1", plural="things", kind="Thing", namespaced=False, view=ConfigMap
    )
    with pytest.raises(KubeError):
        await client.get(strange, "x")
    with pytest.raises(KubeError):
        await client.list(strange)
    assert await client.served(strange, "v1") is None


async def test_a_list_is_whole_over_many_pages(client: Client, place: Place) -> None:
    names = [f"map-{number}" for number in range(7)]
    for name in names:
        await place.create(CONFIG_MAPS, {"metadata": {"name": name, "labels": {"mine": "yes"}}})
    listing = await client.list(CONFIG_MAPS, namespace=place.namespace, labels="mine=yes", limit=2)
    assert sorted(item.metadata.name for item in listing.items) == names
    assert listing.resource_version


async def test_field_selectors_reach_the_server(client: Client, place: Place) -> None:
    await place.pod("one")
    await place.running("two")
    listing = await client.list(PODS, namespace=place.namespace, fields="status.phase=Running")
    assert [item.metadata.name for item in listing.items] == ["two"]


async def test_creating_twice_is_already_exists(client: Client, place: Place) -> None:
    await place.pod("one")
    assert isinstance(await client.create(PODS, pod_body("one"), place.namespace), AlreadyExists)


async def test_a_name_that_is_about_to_be_free_is_told(client: Client, place: Place) -> None:
    held = {"metadata": {"name": "held", "finalizers": ["overspill.dev/hold"]}}
    done(await client.create(CONFIG_MAPS, held, place.namespace))
    taken = await client.create(CONFIG_MAPS, held, place.namespace)
    assert isinstance(taken, AlreadyExists)
    assert not taken.is_leaving
    done(await client.delete(CONFIG_MAPS, "held", place.namespace))
    taken = await client.create(CONFIG_MAPS, held, place.namespace)
    assert isinstance(taken, AlreadyExists)
    assert taken.is_leaving
    free = {"metadata": {"finalizers": None}}
    done(await client.patch(CONFIG_MAPS, "held", free, kind=PatchKind.MERGE, namespace=place.namespace))


async def test_a_dry_run_changes_nothing(client: Client, place: Place) -> None:
    done(await client.create(PODS, pod_body("one"), place.namespace, dry_run=True))
    assert await client.get(PODS, "one", place.namespace) is None


async def test_an_invalid_object_names_its_fields(client: Client, place: Place) -> None:
    outcome = await client.create(PODS, {"metadata": {"name": "one"}, "spec": {"containers": []}}, place.namespace)
    assert isinstance(outcome, Invalid)
    assert outcome.fields == ("spec.containers",)


async def test_an_object_in_a_namespace_that_is_not_there_is_not_found(client: Client) -> None:
    assert isinstance(await client.create(CONFIG_MAPS, {"metadata": {"name": "a"}}, unique("absent")), NotFound)


async def test_replacing_an_old_version_is_a_conflict(client: Client, place: Place) -> None:
    await place.create(CONFIG_MAPS, {"metadata": {"name": "one"}, "data": {"a": "1"}})
    document = await client.get_document(CONFIG_MAPS, "one", place.namespace)
    assert document is not None
    first = await client.update(CONFIG_MAPS, {**document, "data": {"a": "2"}})
    assert isinstance(first, Done)
    assert isinstance(await client.update(CONFIG_MAPS, {**document, "data": {"a": "3"}}), Conflict)
    assert (await client.get(CONFIG_MAPS, "one", place.namespace)).data == {"a": "2"}


async def test_a_merge_patch_with_an_old_version_is_a_conflict(client: Client, place: Place) -> None:
    made = await place.create(CONFIG_MAPS, {"metadata": {"name": "one"}, "data": {"a": "1"}})
    body = {"metadata": {"resourceVersion": made.metadata.resource_version}, "data": {"a": "2"}}
    space = place.namespace
    assert isinstance(await client.patch(CONFIG_MAPS, "one", body, kind=PatchKind.MERGE, namespace=space), Done)
    body["data"] = {"a": "3"}
    assert isinstance(await client.patch(CONFIG_MAPS, "one", body, kind=PatchKind.MERGE, namespace=space), Conflict)


async def test_deleting_by_uid_spares_another_object_of_that_name(client: Client, place: Place) -> None:
    made = await place.create(CONFIG_MAPS, {"metadata": {"name": "one"}})
    assert isinstance(await client.delete(CONFIG_MAPS, "one", place.namespace, uid=OTHER_UID), Replaced)
    assert isinstance(await client.delete(CONFIG_MAPS, "one", place.namespace, uid=made.metadata.uid), Done)
    assert isinstance(await client.delete(CONFIG_MAPS, "one", place.namespace), NotFound)


@pytest.mark.parametrize("kind", [PatchKind.MERGE, PatchKind.JSON])
async def test_custom_objects_take_the_patch_kinds_that_they_know(client: Client, kind: PatchKind) -> None:
    """A dict body is a merge patch because we say so: a client that guesses sends it as a JSON Patch."""
    name = unique("flavor")
    flavors = await client.served(RESOURCE_FLAVORS, *KUEUE_VERSIONS)
    assert flavors is not None
    done(await client.create(flavors, {"metadata": {"name": name}, "spec": {"nodeLabels": {"pool": "old"}}}))
    merge = {"spec": {"nodeLabels": {"pool": "new"}}}
    steps = [{"op": "replace", "path": "/spec/nodeLabels/pool", "value": "new"}]
    try:
        changed = await client.patch(flavors, name, merge if kind is PatchKind.MERGE else steps, kind=kind)
        assert done(changed).spec.node_labels == {"pool": "new"}
    finally:
        await client.delete(flavors, name)


async def test_both_versions_of_kueue_are_found(client: Client) -> None:
    for version in KUEUE_VERSIONS:
        resource = await client.served(CLUSTER_QUEUES, version)
        assert resource is not None
        assert resource.version == version
        await client.list(resource)
    assert (await client.served(CLUSTER_QUEUES, *KUEUE_VERSIONS)).version == KUEUE_VERSIONS[0]
    assert await client.served(CLUSTER_QUEUES, "v9") is None


async def test_raw_answers_come_back_whatever_their_status(client: Client) -> None:
    assert (await client.raw("GET", "/version"))[0] == 200
    assert (await client.raw("GET", "/api/v1/nonsense"))[0] == 404
