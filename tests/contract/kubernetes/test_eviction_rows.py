"""The Eviction API row by row: `tests/cases/eviction_api.yaml`, each situation made from real pods and budgets.

A budget's status is what the disruption controller computes, so a row's numbers come from as many ready pods and such a
`minAvailable` as lead to them. Two rows need a status that the controller would put right at once (EA-16 a status older
than its spec, EA-17 a list of 2,001 evicted pods); there the pods belong to an owner that cannot be scaled: the
controller then only forbids disruptions and leaves the rest of the status alone.

Three rows an API cannot show: EA-08, EA-09 and EA-14 need the pod to change between the server's own reading and its
own deleting. The number of tries that rows tell cannot be seen either; of EA-10 the rest is asked with a version that is
out of date: a conflict, and no deletion.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.contract.kubernetes.client import Api, Object, Reply
from tests.contract.kubernetes.objects import (
    BUDGETS,
    CONFIG_MAPS,
    PODS,
    READY,
    bind,
    budget,
    config_map,
    pod,
    report,
    run,
)

CASES = Path(__file__).parents[2] / "cases" / "eviction_api.yaml"
NOT_SHOWN = ("EA-08", "EA-09", "EA-14")
ROWS = [row for row in yaml.safe_load(CASES.read_text())["eviction_api"] if row["id"] not in NOT_SHOWN]
LABELS = {"app": "guarded"}
TARGET = "target"
UNREADY = {"type": "Ready", "status": "False"}


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in ROWS])
async def test_an_eviction_is_answered_as_the_row_says(api: Api, namespace: str, nodes, row: Object) -> None:
    made = await _arrange(api, namespace, await nodes.add(), row)
    before = await _charged(api, namespace)
    reply = await _evict(api, namespace, made, row.get("request", {}))

    expected = row["expect"]
    _check_answer(reply, row)
    seen = (await api.get(f"{PODS.format(namespace)}/{TARGET}")).body
    gone = seen["kind"] == "Status" or "deletionTimestamp" in seen["metadata"]
    assert gone is expected.get("deleted", False), seen
    if not expected.get("budget_used", gone):
        assert await _charged(api, namespace) == before


def _check_answer(reply: Reply, row: Object) -> None:
    expected = row["expect"]
    if expected.get("error") == "conflict":
        reply.refused(409, "Conflict")
    elif expected["http"] == 201:
        assert (reply.status, reply.body["status"]) == (201, "Success"), reply.body
    else:
        status = reply.refused(expected["http"])
        if "retry_after_s" in expected:
            assert status["details"]["retryAfterSeconds"] == expected["retry_after_s"]
            assert reply.headers["Retry-After"] == str(expected["retry_after_s"])


async def _arrange(api: Api, namespace: str, node: str, row: Object) -> Object:
    """The pods and budgets of a row; the pod to be evicted."""
    wanted, pods = row["pod"], PODS.format(namespace)
    stuck = any("observed_generation_behind" in each or "disrupted_pods" in each for each in row["pdbs"])
    body = pod(TARGET, labels=LABELS)
    if stuck:
        body["metadata"]["ownerReferences"] = [await _unscalable(api, namespace)]
    (await api.post(pods, body)).ok()
    if wanted["phase"] == "Running":
        # One that is unready never was ready: a budget's numbers could else be those of a moment before.
        await bind(api, namespace, TARGET, node)
        ready = READY if wanted.get("ready", True) else UNREADY
        await report(api, namespace, TARGET, phase="Running", conditions=[ready])
    elif wanted["phase"] != "Pending":
        await report(api, namespace, TARGET, phase=wanted["phase"])
    for number, each in enumerate(row["pdbs"]):
        await (_stuck_budget(api, namespace, each) if stuck else _budget(api, namespace, node, number, row))
    if wanted.get("terminating"):
        (await api.delete(f"{pods}/{TARGET}")).ok()
    return (await api.get(f"{pods}/{TARGET}")).ok()


async def _unscalable(api: Api, namespace: str) -> Object:
    owner = (await api.post(CONFIG_MAPS.format(namespace), config_map("owner"))).ok()
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "owner",
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }


async def _budget(api: Api, namespace: str, node: str, number: int, row: Object) -> None:
    """A budget that the controller finds in this state, with the ready pods beside the target that it takes."""
    wanted, target = row["pdbs"][number], row["pod"]
    matches = wanted.get("matches", True)
    counts = matches and target["phase"] == "Running" and target.get("ready", True)
    healthy = wanted.get("current_healthy", wanted["allowed"] + 1)
    desired = wanted.get("desired_healthy", healthy - wanted["allowed"])
    if number == 0:
        for index in range(healthy - int(counts)):
            name = f"beside-{index}"
            (await api.post(PODS.format(namespace), pod(name, labels=LABELS if matches else {"app": "other"}))).ok()
            await run(api, namespace, name, node)
    policy = {"unhealthyPodEvictionPolicy": wanted["unhealthy_policy"]} if "unhealthy_policy" in wanted else {}
    name, labels = f"keep-{number}", LABELS if matches else {"app": "other"}
    (await api.post(BUDGETS.format(namespace), budget(name, labels, minAvailable=desired, **policy))).ok()
    await api.eventually(
        f"{BUDGETS.format(namespace)}/{name}",
        lambda seen: _numbers(seen) == (1, wanted["allowed"], healthy, desired),
        f"{name} is in the state of the row",
    )


def _numbers(seen: Object) -> tuple[Any, ...]:
    status = seen.get("status", {})
    fields = ("observedGeneration", "disruptionsAllowed", "currentHealthy", "desiredHealthy")
    return tuple(status.get(field) for field in fields)


async def _stuck_budget(api: Api, namespace: str, wanted: Object) -> None:
    """A budget that its controller cannot compute, with the status that the row asks for."""
    path = f"{BUDGETS.format(namespace)}/keep-0"
    (await api.post(BUDGETS.format(namespace), budget("keep-0", LABELS, maxUnavailable=1))).ok()
    failed = lambda seen: any(each["reason"] == "SyncFailed" for each in seen["status"].get("conditions", []))  # noqa: E731
    await api.eventually(path, failed, "the controller gives up on the budget")
    if "disrupted_pods" in wanted:
        many = {f"gone-{number}": "2026-11-30T06:00:00Z" for number in range(wanted["disrupted_pods"])}
        status = {"status": {"observedGeneration": 1, "disruptedPods": many}}
        (await api.patch(f"{path}/status", status)).ok()


async def _charged(api: Api, namespace: str) -> list[Any]:
    """What evictions have taken from each budget."""
    listing = (await api.get(BUDGETS.format(namespace))).ok()["items"]
    return [sorted(each.get("status", {}).get("disruptedPods", {})) for each in listing]


async def _evict(api: Api, namespace: str, made: Object, request: Object) -> Reply:
    options: Object = {"gracePeriodSeconds": 30}
    if "dry_run" in request:
        options["dryRun"] = [request["dry_run"]]
    if request.get("precondition") == "resourceVersion":
        (await api.patch(f"{PODS.format(namespace)}/{TARGET}", {"metadata": {"labels": {"moved": "on"}}})).ok()
        options["preconditions"] = {"resourceVersion": made["metadata"]["resourceVersion"]}
    name = "another" if request.get("url_name_differs") else TARGET
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, "deleteOptions": options}
    return await api.post(f"{PODS.format(namespace)}/{TARGET}/eviction", body)
