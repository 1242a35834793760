"""Create, read, replace, patch and list objects; what a client gets wrong it is told."""

import pytest

from tests.component.lab_apiserver.conftest import JSON_PATCH, MERGE, POD, PODS, STRATEGIC, Api

NODES = "/api/v1/nodes"
CONTAINER = POD["spec"]["containers"][0]
FLAVORS = "/apis/kueue.x-k8s.io/v1beta1/resourceflavors"


async def test_created_object_has_what_only_the_server_gives(api):
    """uid, creationTimestamp, resourceVersion, generation, defaults and status."""
    pod = await api.pod()
    metadata = pod["metadata"]
    assert pod["kind"] == "Pod"
    assert len(metadata["uid"]) == 36
    assert metadata["generation"] == 1
    assert int(metadata["resourceVersion"]) > 1000
    assert metadata["creationTimestamp"].endswith("Z")
    assert pod["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert pod["spec"]["restartPolicy"] == "Always"
    assert pod["spec"]["terminationGracePeriodSeconds"] == 30
    assert [t["tolerationSeconds"] for t in pod["spec"]["tolerations"]] == [300, 300]
    assert await api.ok("GET", f"{PODS}/p") == pod


async def test_versions_grow_over_all_kinds(api):
    first = await api.pod()
    second = await api.ok("POST", NODES, {"metadata": {"name": "n"}})
    assert int(second["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"])


async def test_second_of_a_name_is_refused(api):
    await api.pod()
    status, answer = await api.call("POST", PODS, POD)
    assert (status, answer["reason"]) == (409, "AlreadyExists")
    assert answer["message"] == 'pods "p" already exists'


async def test_generated_names_are_free_and_prefixed(api):
    body = {"metadata": {"generateName": "web-"}, "spec": POD["spec"]}
    names = {(await api.ok("POST", PODS, body))["metadata"]["name"] for _ in range(20)}
    assert len(names) == 20
    assert all(name.startswith("web-") and len(name) == 9 for name in names)


async def test_missing_namespace_is_404(api):
    status, answer = await api.call("POST", "/api/v1/namespaces/nowhere/pods", POD)
    assert (status, answer["message"]) == (404, 'namespaces "nowhere" not found')


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/widgets", "/apis/apps/v2/deployments", "/apis/example.com/v1/things", f"{PODS}/p/exec", "/api/v1/pods/p",
        "/nothing", "/apis/example.com", "/apis/example.com/v1",
    ],
)  # fmt: skip
async def test_what_is_not_served_is_404(api, path):
    await api.pod()
    status, answer = await api.get(path)
    assert (status, answer["kind"], answer["reason"]) == (404, "Status", "NotFound")


async def test_stale_replace_conflicts_and_loses_nothing(api):
    pod = await api.pod()
    fresh = {**pod, "metadata": {**pod["metadata"], "labels": {"a": "1"}}}
    await api.ok("PUT", f"{PODS}/p", fresh)
    status, answer = await api.call("PUT", f"{PODS}/p", {**pod, "metadata": {**pod["metadata"], "labels": {"a": "2"}}})
    assert (status, answer["reason"]) == (409, "Conflict")
    assert "the object has been modified" in answer["message"]
    assert (await api.ok("GET", f"{PODS}/p"))["metadata"]["labels"] == {"a": "1"}


async def test_replace_without_version_is_refused_where_the_real_server_does(api):
    """Leases, budgets and custom resources have no unconditional update; pods and nodes do."""
    await api.ok("POST", FLAVORS, {"metadata": {"name": "f"}})
    status, answer = await api.call(
        "PUT", f"{FLAVORS}/f", {"metadata": {"name": "f"}, "spec": {"nodeLabels": {"a": "b"}}}
    )
    assert status == 422
    assert answer["details"]["causes"][0]["field"] == "metadata.resourceVersion"
    await api.ok("POST", NODES, {"metadata": {"name": "n"}})
    await api.ok("PUT", f"{NODES}/n", {"metadata": {"name": "n", "labels": {"a": "b"}}})


async def test_change_that_changes_nothing_is_no_write(api):
    pod = await api.pod(labels={"a": "1"})
    again = await api.ok("PATCH", f"{PODS}/p", {"metadata": {"labels": {"a": "1"}}}, content_type=MERGE)
    assert again["metadata"]["resourceVersion"] == pod["metadata"]["resourceVersion"]


async def test_json_patch_test_guards_the_rest(api):
    await api.ok("POST", NODES, {"metadata": {"name": "n"}, "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}})
    swap = {"op": "replace", "path": "/spec/taints", "value": [{"key": "other", "effect": "NoExecute"}]}
    wrong = [{"op": "test", "path": "/spec/taints", "value": []}, swap]
    status, answer = await api.call("PATCH", f"{NODES}/n", wrong, content_type=JSON_PATCH)
    assert (status, answer["reason"]) == (422, "Invalid")
    right = [{"op": "test", "path": "/spec/taints/0/key", "value": "k"}, swap]
    node = await api.ok("PATCH", f"{NODES}/n", right, content_type=JSON_PATCH)
    assert node["spec"]["taints"] == [{"key": "other", "effect": "NoExecute"}]


async def test_strategic_merge_joins_keyed_lists_and_replaces_atomic_ones(api):
    await api.pod(spec={"schedulingGates": [{"name": "a"}, {"name": "b"}]})
    gates = {"spec": {"schedulingGates": [{"$patch": "delete", "name": "a"}]}}
    pod = await api.ok("PATCH", f"{PODS}/p", gates, content_type=STRATEGIC)
    assert pod["spec"]["schedulingGates"] == [{"name": "b"}]
    await api.ok("POST", NODES, {"metadata": {"name": "n"}, "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}})
    taints = {"spec": {"taints": [{"key": "other", "effect": "NoSchedule"}]}}
    node = await api.ok("PATCH", f"{NODES}/n", taints, content_type=STRATEGIC)
    assert [taint["key"] for taint in node["spec"]["taints"]] == ["other"]


async def test_conditions_merge_by_type(api):
    await api.pod()
    for kind in ("Ready", "Initialized"):
        status = {"status": {"conditions": [{"type": kind, "status": "True"}]}}
        pod = await api.ok("PATCH", f"{PODS}/p/status", status, content_type=STRATEGIC)
    assert {condition["type"] for condition in pod["status"]["conditions"]} == {"Ready", "Initialized"}


@pytest.mark.parametrize(
    ("path", "content_type"),
    [
        (f"{PODS}/p", "text/plain"),
        (f"{PODS}/p", "application/apply-patch+yaml"),
        (f"{FLAVORS}/f", STRATEGIC),
        (f"{PODS}/p", "application/json"),
    ],
)
async def test_patch_of_a_kind_not_taken_is_415(api, path, content_type):
    await api.pod()
    await api.ok("POST", FLAVORS, {"metadata": {"name": "f"}})
    status, answer = await api.call("PATCH", path, {"metadata": {"labels": {"a": "b"}}}, content_type=content_type)
    assert (status, answer["reason"]) == (415, "UnsupportedMediaType")


async def test_status_and_the_rest_do_not_touch_each_other(api):
    await api.pod()
    both = {"spec": {"activeDeadlineSeconds": 9}, "status": {"phase": "Running"}}
    pod = await api.ok("PATCH", f"{PODS}/p", both, content_type=MERGE)
    assert (pod["spec"]["activeDeadlineSeconds"], pod["status"]["phase"]) == (9, "Pending")
    both["spec"]["activeDeadlineSeconds"] = 5
    pod = await api.ok("PATCH", f"{PODS}/p/status", both, content_type=MERGE)
    assert (pod["spec"]["activeDeadlineSeconds"], pod["status"]["phase"]) == (9, "Running")


async def test_nulls_and_empty_lists_are_not_served(api):
    """A Go struct would not encode them, so a `test` in a JSON Patch must not see them either."""
    body = {
        "metadata": {"name": "n", "labels": {}, "annotations": None},
        "spec": {"podCIDRs": [], "unschedulable": None},
    }
    node = await api.ok("POST", NODES, body)
    assert set(node["spec"]) == {"taints"}
    assert "labels" not in node["metadata"]
    node = await api.ok("PATCH", f"{NODES}/n", {"spec": {"taints": []}}, content_type=MERGE)
    assert node["spec"] == {}


async def test_status_is_told_back_as_go_writes_it(api):
    """Empty texts and zeros of `omitempty` members vanish; members without it are there though nobody wrote them."""
    await api.pod()
    container = {"name": "main", "image": "i", "imageID": "", "state": {}}
    condition = {"type": "Ready", "status": "False", "reason": "", "message": ""}
    status = {"podIP": "10.0.0.1", "reason": "", "conditions": [condition], "containerStatuses": [container]}
    pod = await api.ok("PATCH", f"{PODS}/p/status", {"status": status}, content_type=STRATEGIC)
    assert pod["status"] == {
        "phase": "Pending",
        "qosClass": "BestEffort",
        "podIP": "10.0.0.1",
        "podIPs": [{"ip": "10.0.0.1"}],
        "conditions": [{"type": "Ready", "status": "False", "lastProbeTime": None, "lastTransitionTime": None}],
        "containerStatuses": [{**container, "lastState": {}, "ready": False, "restartCount": 0}],
    }
    again = await api.ok("PATCH", f"{PODS}/p/status", {"status": status}, content_type=STRATEGIC)
    assert again["metadata"]["resourceVersion"] == pod["metadata"]["resourceVersion"]
    body = {"metadata": {"name": "n"}, "spec": {"unschedulable": False}, "status": {"capacity": {"pods": 110}}}
    node = await api.ok("POST", NODES, body)
    assert "unschedulable" not in node["spec"]
    assert node["status"]["allocatable"] == {"pods": "110"}
    assert node["status"]["nodeInfo"]["kubeletVersion"] == ""


async def test_times_are_told_back_in_utc_and_whole_seconds(api):
    await api.pod()
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00.75+02:00"}
    pod = await api.ok("PATCH", f"{PODS}/p/status", {"status": {"conditions": [condition]}}, content_type=STRATEGIC)
    assert pod["status"]["conditions"][0]["lastTransitionTime"] == "2025-12-31T22:00:00Z"
    condition["lastTransitionTime"] = "yesterday"
    status, _ = await api.call(
        "PATCH", f"{PODS}/p/status", {"status": {"conditions": [condition]}}, content_type=STRATEGIC
    )
    assert status == 422


async def test_dry_run_stores_nothing(api):
    await api.ok("POST", PODS, POD, dryRun="All")
    assert (await api.get(f"{PODS}/p"))[0] == 404
    await api.pod()
    await api.ok("PATCH", f"{PODS}/p", {"metadata": {"labels": {"a": "b"}}}, content_type=MERGE, dryRun="All")
    await api.ok("DELETE", f"{PODS}/p", dryRun="All")
    assert "labels" not in (await api.ok("GET", f"{PODS}/p"))["metadata"]
    status, answer = await api.call("POST", PODS, POD, dryRun="Some")
    assert (status, answer["details"]["kind"], answer["details"]["causes"][0]["field"]) == (
        422,
        "CreateOptions",
        "dryRun",
    )


async def test_wrong_shape_names_the_place(api):
    body = {"metadata": {"name": "p"}, "spec": {"containers": "none"}}
    status, answer = await api.call("POST", PODS, body)
    assert (status, answer["reason"]) == (400, "BadRequest")
    assert "$.spec.containers" in answer["message"]
    await api.pod()
    for patch, kind in (({"spec": {"containers": "none"}}, MERGE), ({"kind": "Node"}, MERGE)):
        status, answer = await api.call("PATCH", f"{PODS}/p", patch, content_type=kind)
        assert (status, answer["details"]["causes"][0]["field"]) == (422, "patch")
    lots = {
        "metadata": {"name": "q"},
        "spec": {"containers": [{**CONTAINER, "resources": {"limits": {"cpu": "lots"}}}]},
    }
    status, answer = await api.call("POST", PODS, lots)
    assert (status, "lots" in answer["message"]) == (400, True)


async def test_body_that_is_no_json_is_refused(api):
    assert (await api.call("POST", PODS, b"{"))[0] == 400
    assert (await api.call("POST", PODS, b"k8s\0", content_type="application/vnd.kubernetes.protobuf"))[0] == 415


async def test_queue_objects_are_the_same_at_both_versions(api):
    flavor = await api.ok("POST", FLAVORS, {"metadata": {"name": "f"}, "spec": {"nodeLabels": {"a": "b"}}})
    other = await api.ok("GET", FLAVORS.replace("v1beta1", "v1beta2") + "/f")
    assert flavor["apiVersion"] == "kueue.x-k8s.io/v1beta1"
    assert other == {**flavor, "apiVersion": "kueue.x-k8s.io/v1beta2"}


async def test_requests_need_the_token(api: Api):
    for headers in ({"Authorization": ""}, {"Authorization": "Bearer other"}):
        async with api.session.get(api.url + PODS, headers=headers) as answer:
            assert answer.status == 401
            assert (await answer.json())["reason"] == "Unauthorized"
