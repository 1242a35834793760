"""The Eviction API: a deletion that asks the pod's disruption budget first.

The order of steps is that of `pkg/registry/core/pod/storage/eviction.go`, its oddities included: the budget is charged
before the deletion is tried, so a precondition that fails then has still cost one disruption until the disruption
controller gives it back. Keeping a budget's status up to date is that controller's work, not the server's.
"""

from http import HTTPStatus

from overspill_lab.apiserver import deletion, errors
from overspill_lab.apiserver.deletion import DeleteOptions, Preconditions
from overspill_lab.apiserver.documents import JsonObject, timestamp
from overspill_lab.apiserver.registry import Registry
from overspill_lab.apiserver.resources import DISRUPTION_BUDGETS, PODS
from overspill_lab.apiserver.selectors import selects
from overspill_lab.apiserver.store import Entry
from overspill_lab.apiserver.subresources import set_condition

_BLOCKED = "Cannot evict pod as it would violate the pod's disruption budget."
_MOST_DISRUPTED = 2000
_BUSY_SECONDS = 10


def evict(registry: Registry, namespace: str, name: str, eviction: JsonObject, *, dry_run: bool) -> None:
    """Evict a pod. Raises 400, 404, 409 (preconditions), 429 (budget), 403 and 500 (budgets that cannot be judged)."""
    if (eviction.get("metadata") or {}).get("name") != name:
        raise errors.bad_request("name in URL does not match name in Eviction object")
    options = deletion.read_options(eviction.get("deleteOptions") or {})
    if dry_run and options.dry_run and "All" not in options.dry_run:
        raise errors.bad_request("Non-matching dry-run options in request and content")
    dry_run = dry_run or "All" in options.dry_run
    pod = registry.read(PODS, namespace, name)
    if not ignores_budgets(pod.obj) and (budget := _budget_of(registry, pod)) is not None:
        _ask(registry, pod, budget, dry_run=dry_run)
    _condition_and_delete(registry, pod, options, dry_run=dry_run)


def ignores_budgets(pod: JsonObject) -> bool:
    """Tell whether a pod may go whatever its budget says: it is not running yet, not any more, or already ending."""
    if "deletionTimestamp" in pod["metadata"]:
        return True
    return pod["status"].get("phase") in ("Pending", "Succeeded", "Failed")


def _budget_of(registry: Registry, pod: Entry) -> Entry | None:
    budgets = [
        entry
        for entry in registry.store.collection(DISRUPTION_BUDGETS).in_order(pod.namespace)
        if guards(entry.obj, pod.obj)
    ]
    if len(budgets) > 1:
        message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise errors.ApiError(code=HTTPStatus.INTERNAL_SERVER_ERROR, reason="", message=message)
    return budgets[0] if budgets else None


def guards(budget: JsonObject, pod: JsonObject) -> bool:
    """Tell whether a budget's selector covers a pod; an empty one covers the whole namespace, a missing one nothing."""
    return selects(budget["spec"].get("selector"), pod["metadata"].get("labels") or {})


def spares_budget(budget: JsonObject, pod: JsonObject) -> bool:
    """Tell whether an unready pod may go without using the budget (`unhealthyPodEvictionPolicy`)."""
    conditions = pod["status"].get("conditions") or ()
    if any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions):
        return False
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    desired = status.get("desiredHealthy", 0)
    return bool(desired > 0 and status.get("currentHealthy", 0) >= desired)


def _ask(registry: Registry, pod: Entry, budget: Entry, *, dry_run: bool) -> None:
    if spares_budget(budget.obj, pod.obj):
        return
    check(budget.obj)
    if dry_run:
        return
    moment = timestamp(registry.now())

    def charge(obj: JsonObject) -> JsonObject:
        status = obj["status"]
        status["disruptionsAllowed"] -= 1
        status["disruptedPods"] = {**(status.get("disruptedPods") or {}), pod.name: moment}
        if status["disruptionsAllowed"] == 0:
            _set_insufficient(status, moment)
        return obj

    registry.rewrite(DISRUPTION_BUDGETS, budget, charge)


def check(budget: JsonObject) -> None:
    """Raise the 429 or 403 of a budget that does not allow a disruption now."""
    metadata, status = budget["metadata"], budget.get("status") or {}
    name, allowed = metadata["name"], status.get("disruptionsAllowed", 0)
    if status.get("observedGeneration", 0) < metadata.get("generation", 0):
        message = f"The disruption budget {name} is still being processed by the server."
        raise _blocked(message, _BUSY_SECONDS)
    if allowed < 0:
        raise errors.forbidden(DISRUPTION_BUDGETS, name, "pdb disruptions allowed is negative")
    if len(status.get("disruptedPods") or ()) > _MOST_DISRUPTED:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise errors.forbidden(DISRUPTION_BUDGETS, name, why)
    if allowed == 0:
        raise _blocked(_shortage(name, status), 0)


def _shortage(name: str, status: JsonObject) -> str:
    for condition in status.get("conditions") or ():
        if condition["type"] == "DisruptionAllowed" and condition.get("reason") == "SyncFailed":
            why = condition.get("message", "")
            return f"The disruption budget {name} does not allow evicting pods currently because it failed sync: {why}"
    needed, present = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
    return f"The disruption budget {name} needs {needed} healthy pods and has {present} currently"


def _blocked(message: str, retry_after: int) -> errors.ApiError:
    cause = {"reason": "DisruptionBudget", "message": message}
    return errors.too_many_requests(_BLOCKED, retry_after=retry_after, causes=[cause])


def _set_insufficient(status: JsonObject, moment: str) -> None:
    kept = [condition for condition in status.get("conditions") or () if condition["type"] != "DisruptionAllowed"]
    condition = {"type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": ""}
    observed = {"observedGeneration": status.get("observedGeneration", 0), "lastTransitionTime": moment}
    status["conditions"] = [*kept, {**condition, **observed}]


def _condition_and_delete(registry: Registry, pod: Entry, options: DeleteOptions, *, dry_run: bool) -> None:
    """Say on the pod why it goes, then delete it with the caller's options."""
    deletion.check_preconditions(PODS, pod, options.preconditions)
    if not dry_run:
        moment = timestamp(registry.now())

        def explain(obj: JsonObject) -> JsonObject:
            because = {"reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}
            set_condition(obj, "DisruptionTarget", moment, status="True", **because)
            return obj

        pod = registry.rewrite(PODS, pod, explain)
        # The caller's version was checked above; our own condition has moved it on.
        uid = options.preconditions.uid if options.preconditions else None
        options = DeleteOptions(options.grace_period_seconds, Preconditions(uid), options.propagation_policy)
    deletion.delete(registry.store, PODS, pod, options, registry.now(), dry_run=dry_run)
