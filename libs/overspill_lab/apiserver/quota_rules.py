"""What a pod costs a ResourceQuota, and whether there is that much left. Pure; follows `pkg/quota/v1/evaluator/core`.

Quotas over pods are done, by number, requests and limits. Scopes and counts of other kinds are not, and are refused.
"""

from collections.abc import Mapping
from decimal import Decimal

import msgspec

from overspill_capacity.requests import Amounts, add, effective_requests
from overspill_lab.apiserver.documents import JsonObject
from overspill_lab.apiserver.errors import FieldError
from overspill_lab.apiserver.quantities import written
from overspill_objects.core import Pod
from overspill_objects.quantity import parse_quantity

_NATIVE = ("cpu", "memory", "ephemeral-storage")
_COUNTED = ("pods", "count/pods")
# What every container must say for itself once a quota speaks of it.
_MUST_SAY = ("cpu", "memory")


def validate(quota: JsonObject) -> list[FieldError]:
    """Return what of a quota the lab cannot enforce or read."""
    spec = quota["spec"]
    problems = [
        FieldError.forbidden(f"spec.{field}", "the lab does not do quotas with scopes")
        for field in ("scopes", "scopeSelector")
        if spec.get(field)
    ]
    for name in spec.get("hard") or ():
        if not (name in _COUNTED or name in _NATIVE or name.startswith(("requests.", "limits."))):
            supported = ("pods", "count/pods", "cpu", "memory", "requests.<resource>", "limits.<resource>")
            problems.append(FieldError.unsupported(f"spec.hard[{name}]", name, supported))
    return problems


def charges(pod: JsonObject) -> Amounts:
    """Return what a pod takes, under every name a quota may have for it; one that has finished is only counted."""
    if pod["status"].get("phase") in ("Succeeded", "Failed"):
        return {"count/pods": Decimal(1)}
    total: Amounts = dict.fromkeys(_COUNTED, Decimal(1))
    for name, amount in effective_requests(msgspec.convert(pod, Pod)).items():
        total[f"requests.{name}"] = amount
        if name in _NATIVE:
            total[name] = amount
    for container in pod["spec"]["containers"]:
        limits = (container.get("resources") or {}).get("limits") or {}
        total = add(total, {f"limits.{name}": parse_quantity(value) for name, value in limits.items()})
    return total


def refusal(name: str, hard: Mapping[str, str], used: Amounts, pod: JsonObject) -> str | None:
    """Return why a quota does not let a pod in, in the words of the real server; None if it does."""
    if missing := _unsaid(hard, pod):
        return f"failed quota: {name}: must specify {'; '.join(missing)}"
    asked = charges(pod)
    zero = Decimal(0)
    over = sorted(
        key for key, limit in hard.items() if key in asked and used.get(key, zero) + asked[key] > parse_quantity(limit)
    )
    if not over:
        return None
    requested, in_use = (
        _listed(over, {key: written(amounts.get(key, zero)) for key in over}) for amounts in (asked, used)
    )
    return f"exceeded quota: {name}, requested: {requested}, used: {in_use}, limited: {_listed(over, hard)}"


def _unsaid(hard: Mapping[str, str], pod: JsonObject) -> list[str]:
    missing = []
    for key in sorted(hard):
        kind, _, name = key.rpartition(".")
        if name not in _MUST_SAY or kind not in ("", "requests", "limits"):
            continue
        silent = [
            container["name"]
            for container in pod["spec"]["containers"]
            if name not in ((container.get("resources") or {}).get(kind or "requests") or {})
        ]
        if silent:
            missing.append(f"{key} for: {','.join(silent)}")
    return missing


def _listed(keys: list[str], values: Mapping[str, str]) -> str:
    return ",".join(f"{key}={values[key]}" for key in keys)
