"""What the server does with any object: identity, versions, names, and the shape of its refusals."""

from __future__ import annotations

import datetime as dt

import pytest

from tests.contract.kubernetes.client import Api, eventually
from tests.contract.kubernetes.objects import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    JOBS,
    NODES,
    PODS,
    config_map,
    deployment,
    job,
    node,
    pod,
    unique,
)


async def test_the_server_gives_an_object_its_identity(api: Api, namespace: str) -> None:
    path = CONFIG_MAPS.format(namespace)
    made = await api.post(path, config_map("one", {"a": "1"}))

    assert made.status == 201
    metadata = made.body["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("one", namespace)
    assert len(metadata["uid"]) == 36
    assert metadata["resourceVersion"]
    created = dt.datetime.fromisoformat(metadata["creationTimestamp"])
    assert metadata["creationTimestamp"].endswith("Z")
    assert abs(dt.datetime.now(dt.UTC) - created) < dt.timedelta(minutes=5)
    assert made.body["kind"] == "ConfigMap"
    assert made.body["apiVersion"] == "v1"
    assert (await api.get(f"{path}/one")).ok()["metadata"]["uid"] == metadata["uid"]


async def test_a_name_made_again_is_another_object(api: Api, namespace: str) -> None:
    path = CONFIG_MAPS.format(namespace)
    first = (await api.post(path, config_map("again"))).ok()
    (await api.delete(f"{path}/again")).ok()
    second = (await api.post(path, config_map("again"))).ok()

    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    assert int(second["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"])


async def test_what_the_client_says_about_identity_is_not_believed(api: Api, namespace: str) -> None:
    lie = config_map("lie", uid="11111111-1111-1111-1111-111111111111", creationTimestamp="2001-01-01T00:00:00Z")
    made = (await api.post(CONFIG_MAPS.format(namespace), lie)).ok()

    assert made["metadata"]["uid"] != "11111111-1111-1111-1111-111111111111"
    assert not made["metadata"]["creationTimestamp"].startswith("2001")


async def test_an_object_may_not_be_created_with_a_version(api: Api, namespace: str) -> None:
    (await api.post(CONFIG_MAPS.format(namespace), config_map("versioned", resourceVersion="5"))).not_taken()
    (await api.get(f"{CONFIG_MAPS.format(namespace)}/versioned")).refused(404)


async def test_generated_names_differ(api: Api, namespace: str) -> None:
    path = CONFIG_MAPS.format(namespace)
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "made-"}}
    names = {(await api.post(path, body)).ok()["metadata"]["name"] for _ in range(3)}

    assert len(names) == 3
    assert all(name.startswith("made-") and len(name) == len("made-") + 5 for name in names)


async def test_a_name_that_was_given_is_not_generated(api: Api, namespace: str) -> None:
    body = {"metadata": {"generateName": "made-", "name": "given"}}
    made = (await api.post(CONFIG_MAPS.format(namespace), body)).ok()["metadata"]
    assert (made["name"], made["generateName"]) == ("given", "made-")


async def test_a_generated_name_is_short_whatever_it_begins_with(api: Api, namespace: str) -> None:
    body = {"metadata": {"generateName": "x" * 250}}
    name = (await api.post(CONFIG_MAPS.format(namespace), body)).ok()["metadata"]["name"]
    assert len(name) == 63
    assert name.startswith("x" * 58)


@pytest.mark.parametrize("begins", ["Not_a_Name-", "x" * 254])
async def test_what_a_generated_name_begins_with_must_be_a_name(api: Api, namespace: str, begins: str) -> None:
    reply = await api.post(CONFIG_MAPS.format(namespace), {"metadata": {"generateName": begins}})
    causes = reply.refused(422, "Invalid")["details"]["causes"]
    assert "metadata.generateName" in {cause["field"] for cause in causes}


async def test_a_taken_name_is_refused_as_already_existing(api: Api, namespace: str) -> None:
    path = CONFIG_MAPS.format(namespace)
    (await api.post(path, config_map("taken"))).ok()
    status = (await api.post(path, config_map("taken"))).refused(409, "AlreadyExists")

    assert status["apiVersion"] == "v1"
    assert status["details"]["name"] == "taken"
    assert status["details"]["kind"] == "configmaps"
    assert 'configmaps "taken" already exists' in status["message"]


async def test_an_unknown_name_is_not_found(api: Api, namespace: str) -> None:
    path = f"{PODS.format(namespace)}/nobody"
    status = (await api.get(path)).refused(404, "NotFound")

    assert status["message"] == 'pods "nobody" not found'
    assert status["details"] == {"name": "nobody", "kind": "pods"}
    (await api.delete(path)).refused(404, "NotFound")
    (await api.patch(path, {"metadata": {"labels": {"a": "b"}}})).refused(404, "NotFound")


async def test_an_object_in_an_unknown_namespace_is_not_found(api: Api) -> None:
    status = (await api.post(CONFIG_MAPS.format("no-such-place"), config_map("a"))).refused(404, "NotFound")
    assert status["details"] == {"name": "no-such-place", "kind": "namespaces"}


@pytest.mark.parametrize("name", ["Upper", "under_score", "-dash", "a" * 254, "sp ace"])
async def test_an_invalid_name_is_refused_by_field(api: Api, namespace: str, name: str) -> None:
    status = (await api.post(CONFIG_MAPS.format(namespace), config_map(name))).refused(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "metadata.name"


async def test_an_object_without_a_name_is_refused(api: Api, namespace: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}
    (await api.post(CONFIG_MAPS.format(namespace), body)).refused(422, "Invalid")


async def test_invalid_labels_are_refused_by_field(api: Api, namespace: str) -> None:
    body = config_map("labelled", labels={"a": "not valid!"})
    status = (await api.post(CONFIG_MAPS.format(namespace), body)).refused(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "metadata.labels"


async def test_a_pod_without_containers_is_refused_by_field(api: Api, namespace: str) -> None:
    body = {**pod("empty"), "spec": {"containers": []}}
    status = (await api.post(PODS.format(namespace), body)).refused(422, "Invalid")

    assert status["details"]["causes"][0]["field"] == "spec.containers"
    assert status["details"]["name"] == "empty"


async def test_a_body_of_another_kind_or_name_is_refused(api: Api, namespace: str) -> None:
    path = CONFIG_MAPS.format(namespace)
    (await api.post(path, pod("a"))).refused(400, "BadRequest")
    (await api.post(path, config_map("a", namespace="elsewhere"))).refused(400, "BadRequest")
    made = (await api.post(path, config_map("a"))).ok()
    (await api.put(f"{path}/b", made)).refused(400, "BadRequest")


async def test_a_body_that_is_not_json_is_refused(api: Api, namespace: str) -> None:
    (await api.post(CONFIG_MAPS.format(namespace), "not an object")).refused(400, "BadRequest")


async def test_every_change_has_a_new_version_and_none_is_no_change(api: Api, namespace: str) -> None:
    path = f"{CONFIG_MAPS.format(namespace)}/versions"
    first = (await api.post(CONFIG_MAPS.format(namespace), config_map("versions", {"a": "1"}))).ok()
    changed = (await api.patch(path, {"data": {"a": "2"}})).ok()
    same = (await api.patch(path, {"data": {"a": "2"}})).ok()

    assert int(changed["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"])
    assert same["metadata"]["resourceVersion"] == changed["metadata"]["resourceVersion"]


async def test_generation_counts_changes_of_the_spec_alone(api: Api, namespace: str) -> None:
    path = f"{JOBS.format(namespace)}/counted"
    made = (await api.post(JOBS.format(namespace), job("counted", suspend=True))).ok()
    labelled = (await api.patch(path, {"metadata": {"labels": {"a": "b"}}})).ok()
    changed = (await api.patch(path, {"spec": {"backoffLimit": 3}})).ok()

    assert made["metadata"]["generation"] == 1
    assert labelled["metadata"]["generation"] == 1
    assert changed["metadata"]["generation"] == 2


async def test_a_dry_run_persists_nothing(api: Api, namespace: str) -> None:
    path = CONFIG_MAPS.format(namespace)
    assert (await api.post(path, config_map("dry"), dryRun="All")).status == 201
    (await api.get(f"{path}/dry")).refused(404)

    (await api.post(path, config_map("wet", {"a": "1"}))).ok()
    (await api.patch(f"{path}/wet", {"data": {"a": "2"}}, dryRun="All")).ok()
    (await api.delete(f"{path}/wet", dryRun="All")).ok()
    assert (await api.get(f"{path}/wet")).ok()["data"] == {"a": "1"}


async def test_what_was_left_out_of_a_pod_is_filled_in(api: Api, namespace: str) -> None:
    body = {"metadata": {"name": "plain"}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    made = (await api.post(PODS.format(namespace), body)).ok()

    spec = made["spec"]
    assert spec["restartPolicy"] == "Always"
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["priority"] == 0
    assert made["status"]["phase"] == "Pending"
    assert made["status"]["qosClass"] == "BestEffort"
    outage = {toleration["key"]: toleration["tolerationSeconds"] for toleration in spec["tolerations"]}
    assert outage == {"node.kubernetes.io/not-ready": 300, "node.kubernetes.io/unreachable": 300}


async def test_an_extended_resource_is_requested_as_it_is_limited(api: Api, namespace: str) -> None:
    body = pod("limited")
    body["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "2"}}
    made = (await api.post(PODS.format(namespace), body)).ok()

    assert made["spec"]["containers"][0]["resources"]["requests"] == {"nvidia.com/gpu": "2"}


async def test_amounts_are_told_back_in_one_form(api: Api, namespace: str) -> None:
    body = pod("amounts")
    body["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}, "limits": {"cpu": "0.5"}}
    (await api.post(PODS.format(namespace), body)).refused(422, "Invalid")  # more asked for than allowed
    body["spec"]["containers"][0]["resources"] = {
        "requests": {"cpu": "0.5", "memory": "2048Mi"},
        "limits": {"cpu": "1000m"},
    }
    made = (await api.post(PODS.format(namespace), body)).ok()
    assert made["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "500m", "memory": "2Gi"},
        "limits": {"cpu": "1"},
    }


@pytest.mark.parametrize("gpus", ["0.5", "500m", "-1", "many"])
async def test_an_impossible_number_of_gpus_is_refused(api: Api, namespace: str, gpus: str) -> None:
    body = pod("odd")
    body["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    reply = await api.post(PODS.format(namespace), body)
    assert reply.status in (400, 422), reply  # what is no number at all cannot even be read
    reply.not_taken()


async def test_extended_resources_are_requested_exactly_as_limited(api: Api, namespace: str) -> None:
    body = pod("uneven")
    body["spec"]["containers"][0]["resources"] = {
        "requests": {"nvidia.com/gpu": "1"},
        "limits": {"nvidia.com/gpu": "2"},
    }
    (await api.post(PODS.format(namespace), body)).refused(422, "Invalid")
    body["spec"]["containers"][0]["resources"] = {"requests": {"nvidia.com/gpu": "1"}}
    (await api.post(PODS.format(namespace), body)).refused(422, "Invalid")


async def test_a_priority_class_gives_a_pod_its_priority(api: Api, namespace: str) -> None:
    classes, name = "/apis/scheduling.k8s.io/v1/priorityclasses", unique("urgent")
    (await api.post(classes, {"metadata": {"name": name}, "value": 700, "preemptionPolicy": "Never"})).ok()
    try:
        # The server looks classes up in a cache of its own, so a new one may be unknown for a moment.
        body = pod("urgent", priorityClassName=name)
        reply = await eventually(
            lambda: api.post(PODS.format(namespace), body), lambda each: each.status != 403, "the class is known"
        )
        made = reply.ok()
        assert (made["spec"]["priority"], made["spec"]["preemptionPolicy"]) == (700, "Never")
        (await api.post(PODS.format(namespace), pod("unknown", priorityClassName="no-such-class"))).refused(
            403, "Forbidden"
        )
    finally:
        (await api.delete(f"{classes}/{name}")).ok()


async def test_most_of_a_pods_spec_cannot_change(api: Api, namespace: str) -> None:
    (await api.post(PODS.format(namespace), pod("fixed"))).ok()
    path = f"{PODS.format(namespace)}/fixed"

    (await api.patch(path, {"spec": {"restartPolicy": "Never"}})).refused(422, "Invalid")
    (await api.patch(path, {"spec": {"nodeName": "somewhere"}})).refused(422, "Invalid")


async def test_a_node_has_no_namespace(api: Api) -> None:
    name = unique("plain")
    made = (await api.post(NODES, node(name))).ok()
    try:
        assert "namespace" not in made["metadata"]
        (await api.get(f"{NODES}/{name}")).ok()
    finally:
        (await api.delete(f"{NODES}/{name}")).ok()


async def test_a_selector_that_does_not_match_its_template_is_refused(api: Api, namespace: str) -> None:
    body = deployment("odd", 1)
    body["spec"]["selector"]["matchLabels"] = {"app": "other"}
    status = (await api.post(DEPLOYMENTS.format(namespace), body)).refused(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "spec.template.metadata.labels"
