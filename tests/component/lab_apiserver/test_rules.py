"""What may be stored and changed: validation, immutability, priorities, and the mutations Overspill's policies make."""

import pytest

from tests.component.lab_apiserver.conftest import JSON_PATCH, MERGE, POD, PODS, STRATEGIC

JOBS = "/apis/batch/v1/namespaces/default/jobs"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
QUEUE = {"kueue.x-k8s.io/queue-name": "research"}
TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example/image:1"}]}}


def gpus(count, requests=None):
    resources = {"limits": {"nvidia.com/gpu": count}}
    if requests is not None:
        resources["requests"] = {"nvidia.com/gpu": requests}
    return {"containers": [{"name": "main", "image": "example/image:1", "resources": resources}]}


def fields(answer):
    return [cause["field"] for cause in answer["details"]["causes"]]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"metadata": {"name": "Upper"}, "spec": POD["spec"]}, "metadata.name"),
        ({"metadata": {"name": "p"}, "spec": {}}, "spec.containers"),
        ({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main"}]}}, "spec.containers[0].image"),
        ({"metadata": {"name": "p"}, "spec": gpus("2", "1")}, "spec.containers[0].resources.requests"),
        ({"metadata": {"name": "p"}, "spec": gpus("0.5")}, "spec.containers[0].resources.limits[nvidia.com/gpu]"),
        ({"metadata": {"name": "p", "finalizers": ["loose"]}, "spec": POD["spec"]}, "metadata.finalizers[0]"),
        ({"metadata": {"name": "p", "labels": {"a": "not ok"}}, "spec": POD["spec"]}, "metadata.labels"),
        ({"spec": POD["spec"]}, "metadata.name"),
        (
            {"metadata": {"name": "p"}, "spec": {**POD["spec"], "tolerations": [{"key": "k", "tolerationSeconds": 1}]}},
            "spec.tolerations[0].effect",
        ),
        (
            {"metadata": {"name": "p"}, "spec": {**POD["spec"], "schedulingGates": [{"name": "g"}], "nodeName": "n"}},
            "spec.nodeName",
        ),
    ],
)
async def test_bad_pod_is_refused_by_field(api, body, field):
    status, answer = await api.call("POST", PODS, body)
    assert (status, answer["reason"]) == (422, "Invalid")
    assert field in fields(answer)


async def test_request_is_taken_from_the_limit(api):
    pod = await api.pod(spec=gpus(2))
    assert pod["spec"]["containers"][0]["resources"]["requests"] == {"nvidia.com/gpu": "2"}


async def test_bound_pod_may_change_little(api):
    pod = await api.pod()
    image = [{"op": "replace", "path": "/spec/containers/0/image", "value": "example/image:2"}]
    changed = await api.ok("PATCH", f"{PODS}/p", image, content_type=JSON_PATCH)
    assert changed["metadata"]["generation"] == 2
    await api.ok("PATCH", f"{PODS}/p", {"spec": {"activeDeadlineSeconds": 60}}, content_type=MERGE)
    tolerations = [{**toleration, "tolerationSeconds": 3600} for toleration in pod["spec"]["tolerations"]]
    tolerations.append({"key": "more", "operator": "Exists"})
    await api.ok("PATCH", f"{PODS}/p", {"spec": {"tolerations": tolerations}}, content_type=MERGE)
    for patch in (
        {"spec": {"tolerations": tolerations[:2]}},
        {"spec": {"containers": []}},
        {"spec": {"activeDeadlineSeconds": 90}},
        {"spec": {"nodeName": "n"}},
        {"spec": {"nodeSelector": {"a": "b"}}},
        {"spec": {"priority": 5}},
        {"spec": {"schedulingGates": [{"name": "late"}]}},
    ):
        status, answer = await api.call("PATCH", f"{PODS}/p", patch, content_type=MERGE)
        assert (status, answer["reason"]) == (422, "Invalid"), patch


async def test_gated_pod_may_be_narrowed_and_released(api):
    await api.pod(spec={"schedulingGates": [{"name": "g"}], "nodeSelector": {"pool": "a"}})
    more = {"spec": {"nodeSelector": {"zone": "b"}}}
    pod = await api.ok("PATCH", f"{PODS}/p", more, content_type=MERGE)
    assert pod["spec"]["nodeSelector"] == {"pool": "a", "zone": "b"}
    other = {"spec": {"nodeSelector": {"pool": "c"}}}
    assert (await api.call("PATCH", f"{PODS}/p", other, content_type=MERGE))[0] == 422
    gone = {"spec": {"schedulingGates": [{"$patch": "delete", "name": "g"}]}}
    pod = await api.ok("PATCH", f"{PODS}/p", gone, content_type=STRATEGIC)
    assert "schedulingGates" not in pod["spec"]


async def test_job_template_is_fixed_once_it_runs(api):
    await api.ok("POST", JOBS, {"metadata": {"name": "j"}, "spec": {"suspend": True, "template": TEMPLATE}})
    where = {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}}
    await api.ok("PATCH", f"{JOBS}/j", where, content_type=MERGE)
    await api.ok("PATCH", f"{JOBS}/j", {"spec": {"suspend": False, "parallelism": 2}}, content_type=MERGE)
    where["spec"]["template"]["spec"]["nodeSelector"]["a"] = "c"
    status, answer = await api.call("PATCH", f"{JOBS}/j", where, content_type=MERGE)
    assert (status, fields(answer)) == (422, ["spec.template"])


async def test_job_gets_the_selector_of_its_uid(api):
    job = await api.ok("POST", JOBS, {"metadata": {"name": "j"}, "spec": {"template": TEMPLATE}})
    assert job["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": job["metadata"]["uid"]}}
    assert job["spec"]["template"]["metadata"]["labels"]["job-name"] == "j"
    assert job["metadata"]["labels"] == job["spec"]["template"]["metadata"]["labels"], (
        "a Job without labels shows its pods'"
    )
    assert (job["spec"]["suspend"], job["spec"]["backoffLimit"], job["spec"]["completions"]) == (False, 6, 1)


async def test_deployment_must_select_its_own_pods(api):
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "c"}}, **POD}}
    spec["template"]["metadata"] = {"labels": {"a": "c"}}
    status, answer = await api.call("POST", DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": spec})
    assert (status, fields(answer)) == (422, ["spec.template.metadata.labels"])
    spec["template"]["metadata"]["labels"] = {"a": "b"}
    deployment = await api.ok("POST", DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": spec})
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": "25%", "maxSurge": "25%"}
    scale = await api.ok("PATCH", f"{DEPLOYMENTS}/d/scale", {"spec": {"replicas": 3}}, content_type=MERGE)
    assert (scale["kind"], scale["spec"]["replicas"], scale["status"]["selector"]) == ("Scale", 3, "a=b")
    assert (await api.ok("GET", f"{DEPLOYMENTS}/d"))["metadata"]["generation"] == 2
    assert (await api.call("PUT", f"{DEPLOYMENTS}/d/scale", {"spec": {"replicas": -1}}))[0] == 422


async def test_priority_comes_from_the_class(api):
    await api.ok("POST", CLASSES, {"metadata": {"name": "high"}, "value": 70, "preemptionPolicy": "Never"})
    pod = await api.pod("a", spec={"priorityClassName": "high"})
    assert (pod["spec"]["priority"], pod["spec"]["preemptionPolicy"]) == (70, "Never")
    system = await api.pod("b", spec={"priorityClassName": "system-node-critical"})
    assert system["spec"]["priority"] == 2_000_001_000
    for spec in ({"priorityClassName": "none"}, {"priority": 9}):
        status, answer = await api.call("POST", PODS, {"metadata": {"name": "c"}, "spec": {**POD["spec"], **spec}})
        assert (status, answer["reason"]) == (403, "Forbidden")
    status, answer = await api.call("PATCH", f"{CLASSES}/high", {"value": 71}, content_type=MERGE)
    assert (status, fields(answer)) == (422, ["value"])


async def test_spillable_pod_tolerates_the_outside_and_prefers_home(api):
    pod = await api.pod(labels={"overspill.dev/spillable": "true"})
    assert {"key": "overspill.dev/external", "operator": "Exists", "effect": "NoSchedule"} in pod["spec"]["tolerations"]
    (term,) = pod["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    wanted = [{"key": "overspill.dev/virtual", "operator": "DoesNotExist"}]
    assert term == {"weight": 100, "preference": {"matchExpressions": wanted}}
    again = {"tolerations": pod["spec"]["tolerations"], "affinity": pod["spec"]["affinity"]}
    second = await api.pod("q", labels={"overspill.dev/spillable": "true"}, spec=again)
    assert {key: second["spec"][key] for key in again} == again
    plain = await api.pod("r")
    assert len(plain["spec"]["tolerations"]) == 2
    assert "affinity" not in plain["spec"]


async def test_queued_work_is_held_and_ranked_by_gpus(api):
    await api.ok("POST", CLASSES, {"metadata": {"name": "overspill-gpu-2"}, "value": 20})
    pod = await api.pod(labels=QUEUE, spec=gpus("2"))
    assert pod["spec"]["schedulingGates"] == [{"name": "overspill.dev/admission"}]
    assert (pod["spec"]["priorityClassName"], pod["spec"]["priority"]) == ("overspill-gpu-2", 20)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
    owned = await api.pod("q", labels=QUEUE, metadata={"ownerReferences": [owner]})
    assert "schedulingGates" not in owned["spec"]
    template = {"spec": {**TEMPLATE["spec"], **gpus("2")}}
    job = await api.ok("POST", JOBS, {"metadata": {"name": "j", "labels": QUEUE}, "spec": {"template": template}})
    assert job["spec"]["suspend"] is True
    assert job["spec"]["template"]["spec"]["priorityClassName"] == "overspill-gpu-2"


async def test_chosen_class_is_kept(api):
    await api.ok("POST", CLASSES, {"metadata": {"name": "overspill-gpu-2"}, "value": 20})
    await api.ok("POST", CLASSES, {"metadata": {"name": "mine"}, "value": 5})
    pod = await api.pod(labels=QUEUE, spec={**gpus("2"), "priorityClassName": "mine"})
    assert (pod["spec"]["priorityClassName"], pod["spec"]["priority"]) == ("mine", 5)
    unknown = await api.pod("q", labels=QUEUE, spec=gpus("3"))
    assert unknown["spec"]["priority"] == 0


QUOTAS = "/api/v1/namespaces/default/resourcequotas"


async def test_quota_lets_in_what_it_has_room_for(api):
    """Refused beyond the limit, free again when a pod has finished or is gone; the status says what is used."""
    await api.pod("before", spec=gpus("1"))
    hard = {"requests.nvidia.com/gpu": "4", "pods": "10"}
    await api.ok("POST", QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    await api.pod("a", spec=gpus("3"))
    status, answer = await api.call("POST", PODS, {"metadata": {"name": "b"}, "spec": gpus("1")})
    assert (status, answer["reason"]) == (403, "Forbidden")
    assert answer["message"] == (
        'pods "b" is forbidden: exceeded quota: q, requested: requests.nvidia.com/gpu=1, '
        "used: requests.nvidia.com/gpu=4, limited: requests.nvidia.com/gpu=4"
    )
    used = (await api.ok("GET", f"{QUOTAS}/q"))["status"]
    assert used == {"hard": hard, "used": {"requests.nvidia.com/gpu": "4", "pods": "2"}}
    await api.ok("PATCH", f"{PODS}/a/status", {"status": {"phase": "Succeeded"}}, content_type=MERGE)
    await api.ok("DELETE", f"{PODS}/before")
    await api.pod("b", spec=gpus("4"))
    assert (await api.ok("GET", f"{QUOTAS}/q"))["status"]["used"] == {"requests.nvidia.com/gpu": "4", "pods": "1"}


async def test_quota_over_cpu_makes_every_container_say_its_share(api):
    await api.ok("POST", QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "1"}}})
    status, answer = await api.call("POST", PODS, POD)
    assert (status, "must specify requests.cpu for: main" in answer["message"]) == (403, True)
    await api.pod(spec={"containers": [{**POD["spec"]["containers"][0], "resources": {"requests": {"cpu": "300m"}}}]})
    assert (await api.ok("GET", f"{QUOTAS}/q"))["status"]["used"] == {"requests.cpu": "300m"}


@pytest.mark.parametrize("spec", [{"scopes": ["BestEffort"]}, {"hard": {"services": "1"}}])
async def test_quota_the_lab_cannot_keep_is_refused(api, spec):
    status, answer = await api.call("POST", QUOTAS, {"metadata": {"name": "q"}, "spec": spec})
    assert (status, answer["reason"]) == (422, "Invalid")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("1000m", "1"), ("0.5", "500m"), (2, "2"), ("1024Mi", "1Gi"), ("1.5Gi", "1536Mi"), ("1500", "1500"),
        ("2000", "2k"), ("0", "0"), ("1e3", "1e3"), ("100n", "100n"),
    ],
)  # fmt: skip
async def test_quantities_are_told_back_in_canonical_form(api, given, told):
    resources = {"requests": {"cpu": given}}
    pod = await api.pod(spec={"containers": [{**POD["spec"]["containers"][0], "resources": resources}]})
    assert pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] == told
