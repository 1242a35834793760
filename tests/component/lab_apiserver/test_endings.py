"""Deleting: grace, preconditions, finalizers, dependents, namespaces; and evicting past a disruption budget."""

import pytest

from tests.component.lab_apiserver.conftest import MERGE, PODS, STRATEGIC

BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
JOBS = "/apis/batch/v1/namespaces/default/jobs"


async def bind(api, name="p", node="n"):
    await api.ok("POST", f"{PODS}/{name}/binding", {"metadata": {"name": name}, "target": {"name": node}})


async def run(api, name="p", *, ready=True):
    await bind(api, name)
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    status = {"status": {"phase": "Running", "conditions": conditions}}
    await api.ok("PATCH", f"{PODS}/{name}/status", status, content_type=STRATEGIC)


async def evict(api, name="p", dry_run=False, **options):
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, "deleteOptions": options}
    return await api.call("POST", f"{PODS}/{name}/eviction", body, **({"dryRun": "All"} if dry_run else {}))


async def budget(api, name="b", *, allowed=0, spec=None, **status):
    body = {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": "web"}}, **(spec or {})}}
    made = await api.ok("POST", BUDGETS, body)
    status = {
        "observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1,
        "expectedPods": 1, **status,
    }  # fmt: skip
    await api.ok("PUT", f"{BUDGETS}/{name}/status", {**made, "status": status})


async def test_unbound_pod_goes_at_once(api):
    await api.pod()
    deleted = await api.ok("DELETE", f"{PODS}/p")
    assert deleted["kind"] == "Pod"
    assert (await api.get(f"{PODS}/p"))[0] == 404


async def test_bound_pod_stays_until_its_kubelet_lets_go(api):
    await api.pod()
    await bind(api)
    dying = await api.ok("DELETE", f"{PODS}/p")
    assert dying["metadata"]["deletionGracePeriodSeconds"] == 30
    assert dying["metadata"]["generation"] == 2
    again = await api.ok("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 60})
    assert again == dying
    shorter = await api.ok("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 5})
    assert shorter["metadata"]["deletionTimestamp"] < dying["metadata"]["deletionTimestamp"]
    await api.ok("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0})
    assert (await api.get(f"{PODS}/p"))[0] == 404


async def test_query_of_a_deletion_counts_only_without_a_body(api):
    """As on a real server, where `?dryRun=All` beside a body deletes."""
    await api.pod()
    await api.ok("DELETE", f"{PODS}/p", dryRun="All")
    await api.ok("GET", f"{PODS}/p")
    await api.ok("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0}, dryRun="All")
    assert (await api.get(f"{PODS}/p"))[0] == 404
    assert (await api.call("DELETE", f"{PODS}/p", gracePeriodSeconds="soon"))[0] == 400


async def test_finished_pod_needs_no_grace(api):
    await api.pod()
    await bind(api)
    await api.ok("PATCH", f"{PODS}/p/status", {"status": {"phase": "Succeeded"}}, content_type=MERGE)
    await api.ok("DELETE", f"{PODS}/p")
    assert (await api.get(f"{PODS}/p"))[0] == 404


@pytest.mark.parametrize("precondition", [{"uid": "another"}, {"resourceVersion": "1"}])
async def test_precondition_that_fails_deletes_nothing(api, precondition):
    await api.pod()
    status, answer = await api.call("DELETE", f"{PODS}/p", {"preconditions": precondition})
    assert (status, answer["reason"]) == (409, "Conflict")
    await api.ok("GET", f"{PODS}/p")


async def test_finalizer_holds_until_it_is_taken_away(api):
    await api.pod(metadata={"finalizers": ["example.com/hold"]})
    held = await api.ok("DELETE", f"{PODS}/p")
    assert "deletionTimestamp" in held["metadata"]
    more = {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}
    status, answer = await api.call("PATCH", f"{PODS}/p", more, content_type=MERGE)
    assert (status, answer["details"]["causes"][0]["field"]) == (422, "metadata.finalizers")
    await api.ok("PATCH", f"{PODS}/p", {"metadata": {"finalizers": None}}, content_type=MERGE)
    assert (await api.get(f"{PODS}/p"))[0] == 404


async def test_policy_addresses_the_garbage_collector(api):
    """Foreground and Orphan leave a finalizer; a Job without a policy orphans its pods, as batch/v1 always has."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example/image:1"}]}}
    for name in ("a", "b", "c"):
        await api.ok("POST", JOBS, {"metadata": {"name": name}, "spec": {"template": template}})
    first = await api.ok("DELETE", f"{JOBS}/a", {"propagationPolicy": "Foreground"})
    second = await api.ok("DELETE", f"{JOBS}/b")
    await api.ok("DELETE", f"{JOBS}/c", {"propagationPolicy": "Background"})
    assert first["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert second["metadata"]["finalizers"] == ["orphan"]
    assert (await api.get(f"{JOBS}/c"))[0] == 404
    status, _ = await api.call("DELETE", f"{JOBS}/a", {"propagationPolicy": "Sideways"})
    assert status == 422


async def test_namespace_goes_when_its_contents_have(api):
    space = "/api/v1/namespaces/team"
    await api.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "team"}})
    await api.ok("POST", f"{space}/configmaps", {"metadata": {"name": "c"}})
    pod = {
        "metadata": {"name": "p", "finalizers": ["example.com/hold"]},
        "spec": {"containers": [{"name": "m", "image": "i"}]},
    }
    await api.ok("POST", f"{space}/pods", pod)
    await api.ok("DELETE", space)
    assert (await api.ok("GET", space))["status"]["phase"] == "Terminating"
    assert (await api.get(f"{space}/configmaps/c"))[0] == 404
    status, answer = await api.call("POST", f"{space}/configmaps", {"metadata": {"name": "d"}})
    assert (status, answer["reason"]) == (403, "Forbidden")
    await api.ok("PATCH", f"{space}/pods/p", {"metadata": {"finalizers": None}}, content_type=MERGE)
    assert (await api.get(space))[0] == 404
    assert (await api.call("DELETE", "/api/v1/namespaces/kube-system"))[0] == 403


async def test_second_binding_conflicts(api):
    await api.pod()
    await bind(api)
    body = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "m"}}
    status, answer = await api.call("POST", f"{PODS}/p/binding", body)
    assert (status, answer["reason"]) == (409, "Conflict")
    pod = await api.ok("GET", f"{PODS}/p")
    assert pod["spec"]["nodeName"] == "n"
    assert [(c["type"], c["status"]) for c in pod["status"]["conditions"]] == [("PodScheduled", "True")]


async def test_gated_pod_cannot_be_bound(api):
    await api.pod(spec={"schedulingGates": [{"name": "example.com/wait"}]})
    status, _ = await api.call("POST", f"{PODS}/p/binding", {"metadata": {"name": "p"}, "target": {"name": "n"}})
    assert status == 409
    gated = (await api.ok("GET", f"{PODS}/p"))["status"]["conditions"][0]
    assert (gated["status"], gated["reason"]) == ("False", "SchedulingGated")


async def test_eviction_without_a_budget_deletes_and_says_why(api):
    await api.pod(labels={"app": "web"})
    await run(api)
    status, answer = await evict(api)
    assert (status, answer["status"]) == (201, "Success")
    pod = await api.ok("GET", f"{PODS}/p")
    assert "deletionTimestamp" in pod["metadata"]
    reasons = {condition["type"]: condition.get("reason") for condition in pod["status"]["conditions"]}
    assert reasons["DisruptionTarget"] == "EvictionByEvictionAPI"


async def test_spent_budget_blocks_with_its_cause(api):
    await api.pod(labels={"app": "web"})
    await run(api)
    await budget(api, allowed=0)
    status, answer = await evict(api)
    assert (status, answer["reason"]) == (429, "TooManyRequests")
    assert answer["details"]["causes"] == [
        {"reason": "DisruptionBudget", "message": "The disruption budget b needs 1 healthy pods and has 1 currently"}
    ]
    assert "deletionTimestamp" not in (await api.ok("GET", f"{PODS}/p"))["metadata"]


async def test_budget_pays_for_each_eviction(api):
    for name in ("p", "q"):
        await api.pod(name, labels={"app": "web"})
        await run(api, name)
    await budget(api, allowed=1)
    assert (await evict(api, "p", dry_run=True))[0] == 201
    assert (await api.ok("GET", f"{BUDGETS}/b"))["status"]["disruptionsAllowed"] == 1
    assert (await evict(api, "p"))[0] == 201
    spent = (await api.ok("GET", f"{BUDGETS}/b"))["status"]
    assert (spent["disruptionsAllowed"], list(spent["disruptedPods"])) == (0, ["p"])
    assert (await evict(api, "q"))[0] == 429
    assert (await evict(api, "p"))[0] == 201, "a pod that is going may be evicted again"


async def test_budget_that_lags_asks_for_patience(api):
    await api.pod(labels={"app": "web"})
    await run(api)
    await budget(api, allowed=1, observedGeneration=0)
    status, answer = await evict(api)
    assert (status, answer["details"]["retryAfterSeconds"]) == (429, 10)


@pytest.mark.parametrize(
    ("spec", "current", "expected"),
    [({}, 0, 429), ({}, 1, 201), ({"unhealthyPodEvictionPolicy": "AlwaysAllow"}, 0, 201)],
)
async def test_unready_pod_may_go_by_policy(api, spec, current, expected):
    await api.pod(labels={"app": "web"})
    await run(api, ready=False)
    await budget(api, spec=spec, currentHealthy=current)
    assert (await evict(api))[0] == expected


async def test_pending_pod_is_not_guarded(api):
    await api.pod(labels={"app": "web"})
    await budget(api)
    assert (await evict(api))[0] == 201
    assert (await api.get(f"{PODS}/p"))[0] == 404


async def test_two_budgets_on_one_pod_cannot_be_judged(api):
    await api.pod(labels={"app": "web"})
    await run(api)
    await budget(api, "b", allowed=1)
    await budget(api, "c", allowed=1)
    status, answer = await evict(api)
    assert (status, "more than one PodDisruptionBudget" in answer["message"]) == (500, True)


async def test_eviction_of_another_pod_of_that_name_conflicts(api):
    await api.pod(labels={"app": "web"})
    await run(api)
    status, answer = await evict(api, preconditions={"uid": "another"})
    assert (status, answer["reason"]) == (409, "Conflict")
    assert (await evict(api, "nobody"))[0] == 404
    assert "deletionTimestamp" not in (await api.ok("GET", f"{PODS}/p"))["metadata"]
