"""Jobs: suspended ones make no pods, resumed ones do, finished pods finish them."""

from __future__ import annotations

from tests.contract.kubernetes.client import Api, Object, eventually
from tests.contract.kubernetes.objects import JOBS, PODS, bind, job, nowhere, report, run


async def _pods(api: Api, namespace: str, name: str, count: int) -> list[Object]:
    """The Job's pods that are not going, once they are as many as this."""

    async def read() -> list[Object]:
        reply = (await api.get(PODS.format(namespace), labelSelector=f"batch.kubernetes.io/job-name={name}")).ok()
        return [each for each in reply["items"] if "deletionTimestamp" not in each["metadata"]]

    return await eventually(read, lambda seen: len(seen) == count, f"job {name} has {count} pods")


def _conditions(seen: Object) -> dict[str, str]:
    return {each["type"]: each["status"] for each in seen["status"].get("conditions", [])}


async def test_a_job_makes_its_pods(api: Api, namespace: str) -> None:
    made = (await api.post(JOBS.format(namespace), job("plain", parallelism=2, completions=2))).ok()
    pods = await _pods(api, namespace, "plain", 2)

    for each in pods:
        (owner,) = each["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["controller"]) == ("Job", "plain", True)
        assert owner["uid"] == made["metadata"]["uid"]
        labels = each["metadata"]["labels"]
        assert labels["job-name"] == "plain"
        assert labels["batch.kubernetes.io/controller-uid"] == made["metadata"]["uid"]
        assert each["metadata"]["name"].startswith("plain-")
        # Counted before it may go, whoever deletes it.
        assert "batch.kubernetes.io/job-tracking" in each["metadata"]["finalizers"]
    seen = await api.eventually(f"{JOBS.format(namespace)}/plain", lambda s: s["status"].get("active") == 2, "active")
    assert seen["status"]["startTime"]


async def test_a_suspended_job_makes_no_pods_until_it_is_resumed(api: Api, namespace: str) -> None:
    path = f"{JOBS.format(namespace)}/held"
    (await api.post(JOBS.format(namespace), job("held", suspend=True))).ok()
    seen = await api.eventually(path, lambda each: _conditions(each).get("Suspended") == "True", "it is suspended")
    assert "startTime" not in seen["status"]
    assert await _pods(api, namespace, "held", 0) == []

    (await api.patch(path, {"spec": {"suspend": False}})).ok()
    await _pods(api, namespace, "held", 1)
    seen = await api.eventually(path, lambda each: each["status"].get("startTime"), "it has started")
    assert _conditions(seen)["Suspended"] == "False"


async def test_suspending_a_running_job_takes_its_pods_away(api: Api, namespace: str) -> None:
    path = f"{JOBS.format(namespace)}/stopped"
    (await api.post(JOBS.format(namespace), job("stopped"))).ok()
    (child,) = await _pods(api, namespace, "stopped", 1)
    (await api.patch(path, {"spec": {"suspend": True}})).ok()

    await api.gone(f"{PODS.format(namespace)}/{child['metadata']['name']}")
    seen = await api.eventually(path, lambda each: _conditions(each).get("Suspended") == "True", "it is suspended")
    assert "startTime" not in seen["status"]
    assert not seen["status"].get("failed")


async def test_a_finished_pod_completes_its_job(api: Api, namespace: str) -> None:
    path = f"{JOBS.format(namespace)}/done"
    (await api.post(JOBS.format(namespace), job("done"))).ok()
    (child,) = await _pods(api, namespace, "done", 1)
    name = child["metadata"]["name"]
    await run(api, namespace, name, nowhere())
    await api.eventually(path, lambda each: each["status"].get("ready") == 1, "its pod is ready")
    await report(api, namespace, name, phase="Succeeded")

    seen = await api.eventually(path, lambda each: _conditions(each).get("Complete") == "True", "it is complete")
    assert seen["status"]["succeeded"] == 1
    assert seen["status"]["completionTime"]
    assert not seen["status"].get("active")
    # The finished pod stays to be read, and nothing holds it any more.
    assert "finalizers" not in (await api.get(f"{PODS.format(namespace)}/{name}")).ok()["metadata"]


async def test_a_failed_pod_is_tried_again_until_the_limit(api: Api, namespace: str) -> None:
    path = f"{JOBS.format(namespace)}/failing"
    (await api.post(JOBS.format(namespace), job("failing", backoffLimit=0))).ok()
    (child,) = await _pods(api, namespace, "failing", 1)
    await bind(api, namespace, child["metadata"]["name"], nowhere())
    await report(api, namespace, child["metadata"]["name"], phase="Failed")

    seen = await api.eventually(path, lambda each: _conditions(each).get("Failed") == "True", "it has failed")
    assert seen["status"]["failed"] == 1
    assert next(each for each in seen["status"]["conditions"] if each["type"] == "Failed")["reason"] == (
        "BackoffLimitExceeded"
    )


async def test_a_deleted_pod_of_a_job_is_replaced(api: Api, namespace: str) -> None:
    (await api.post(JOBS.format(namespace), job("kept", backoffLimit=6))).ok()
    (child,) = await _pods(api, namespace, "kept", 1)
    (await api.delete(f"{PODS.format(namespace)}/{child['metadata']['name']}")).ok()

    async def successors() -> list[Object]:
        listing = (await api.get(PODS.format(namespace), labelSelector="job-name=kept")).ok()
        return [each for each in listing["items"] if each["metadata"]["uid"] != child["metadata"]["uid"]]

    await eventually(successors, lambda seen: len(seen) == 1, "the job makes another pod")


async def test_a_suspended_job_may_be_told_where_to_run(api: Api, namespace: str) -> None:
    path = f"{JOBS.format(namespace)}/placed"
    (await api.post(JOBS.format(namespace), job("placed", suspend=True))).ok()
    placed = {"spec": {"template": {"spec": {"nodeSelector": {"pool": "home"}}}}}
    (await api.patch(path, placed)).ok()
    (await api.patch(path, {"spec": {"suspend": False}})).ok()
    (child,) = await _pods(api, namespace, "placed", 1)
    assert child["spec"]["nodeSelector"] == {"pool": "home"}


async def test_a_jobs_template_is_fixed_once_it_runs(api: Api, namespace: str) -> None:
    (await api.post(JOBS.format(namespace), job("fixed"))).ok()
    await api.eventually(f"{JOBS.format(namespace)}/fixed", lambda each: each["status"].get("startTime"), "it starts")
    placed = {"spec": {"template": {"spec": {"nodeSelector": {"pool": "home"}}}}}
    (await api.patch(f"{JOBS.format(namespace)}/fixed", placed)).refused(422, "Invalid")


async def test_the_pods_of_a_deleted_job_go_with_it(api: Api, namespace: str) -> None:
    (await api.post(JOBS.format(namespace), job("parent"))).ok()
    (child,) = await _pods(api, namespace, "parent", 1)
    (await api.delete(f"{JOBS.format(namespace)}/parent", {"propagationPolicy": "Background"})).ok()
    await api.gone(f"{PODS.format(namespace)}/{child['metadata']['name']}")
