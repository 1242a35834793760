"""How a Deployment's ReplicaSets should be scaled next. (pkg/controller/deployment)

Left out: progress deadlines and proportional scaling in the middle of a rollout; there the new ReplicaSet takes the
difference.
"""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Struct

from overspill_lab.conditions import with_condition
from overspill_lab.controllers.budget_rules import scaled
from overspill_lab.stamps import stamp

HASH_LABEL: Final = "pod-template-hash"
REVISION: Final = "deployment.kubernetes.io/revision"
DESIRED_REPLICAS: Final = "deployment.kubernetes.io/desired-replicas"
MAX_REPLICAS: Final = "deployment.kubernetes.io/max-replicas"
SAFE_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"  # no vowels: a hash shall not spell a word
HASH_LENGTH: Final = 10


class Replicas(Struct, frozen=True, kw_only=True):
    """One ReplicaSet of the Deployment, in numbers."""

    name: str
    created: datetime
    wanted: int  # spec.replicas
    present: int  # status.replicas
    ready: int
    available: int
    observed: bool  # its status is about its present spec


def template_hash(template: Mapping[str, Any], collisions: int) -> str:
    """A short name for a pod template; another one after each collision."""
    digest = hashlib.blake2b(msgspec.json.encode((template, collisions), order="deterministic"), digest_size=8).digest()
    number, letters = int.from_bytes(digest, "big"), []
    for _ in range(HASH_LENGTH):
        number, rest = divmod(number, len(SAFE_LETTERS))
        letters.append(SAFE_LETTERS[rest])
    return "".join(letters)


def without_hash(template: Mapping[str, Any]) -> dict[str, Any]:
    """A ReplicaSet's template as its Deployment has it."""
    metadata = dict(template.get("metadata", {}))
    metadata["labels"] = {key: value for key, value in metadata.get("labels", {}).items() if key != HASH_LABEL}
    return {**template, "metadata": metadata}


def same_template(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two templates make the same pods."""
    return _bare(without_hash(one)) == _bare(without_hash(other))


def _bare(template: dict[str, Any]) -> dict[str, Any]:
    """Without what an API server may or may not write out: nulls and empty maps of the metadata."""
    metadata = {key: value for key, value in template["metadata"].items() if value}
    return {**template, "metadata": metadata}


def surge(spec: Mapping[str, Any]) -> tuple[int, int]:
    """How many pods more than wanted there may be, and how many fewer available ones. Not both are 0."""
    if spec.get("strategy", {}).get("type") == "Recreate":
        return 0, spec["replicas"]
    rolling = spec.get("strategy", {}).get("rollingUpdate") or {}
    more = scaled(rolling.get("maxSurge", "25%"), spec["replicas"])
    fewer = min(scaled(rolling.get("maxUnavailable", "25%"), spec["replicas"], up=False), spec["replicas"])
    return more, fewer if more or fewer else 1


def next_scales(spec: Mapping[str, Any], new: Replicas | None, old: Sequence[Replicas]) -> dict[str, int]:
    """The replicas that each ReplicaSet of these should have now; those that stay are left out.

    `new` is the one of the present template; None when it does not exist yet (then see `first_scale`).
    """
    if new is None or spec.get("paused"):
        return _only_scaled(spec, new, old)
    if spec.get("strategy", {}).get("type") == "Recreate":
        return _recreate(spec, new, old)
    scales = {new.name: _new_scale(spec, new, old)}
    if scales[new.name] == new.wanted:
        scales |= _old_scales(spec, new, old)
    return {one.name: scales[one.name] for one in (new, *old) if scales.get(one.name, one.wanted) != one.wanted}


def first_scale(spec: Mapping[str, Any], old: Sequence[Replicas]) -> int:
    """With how many replicas the ReplicaSet of a new template is created."""
    if spec.get("strategy", {}).get("type") == "Recreate":
        return 0 if any(one.wanted or one.present for one in old) else int(spec["replicas"])
    room: int = spec["replicas"] + surge(spec)[0] - sum(one.wanted for one in old)
    return max(0, min(room, int(spec["replicas"])))


def _only_scaled(spec: Mapping[str, Any], new: Replicas | None, old: Sequence[Replicas]) -> dict[str, int]:
    """A paused Deployment follows its replicas, if only one ReplicaSet has any."""
    active = [one for one in (*([new] if new else []), *old) if one.wanted]
    if len(active) != 1 or active[0].wanted == spec["replicas"]:
        return {}
    return {active[0].name: spec["replicas"]}


def _recreate(spec: Mapping[str, Any], new: Replicas, old: Sequence[Replicas]) -> dict[str, int]:
    if down := {one.name: 0 for one in old if one.wanted}:
        return down
    if any(one.present or not one.observed for one in old) or new.wanted == spec["replicas"]:
        return {}
    return {new.name: spec["replicas"]}


def _new_scale(spec: Mapping[str, Any], new: Replicas, old: Sequence[Replicas]) -> int:
    if new.wanted >= spec["replicas"]:
        return int(spec["replicas"])
    room: int = spec["replicas"] + surge(spec)[0] - new.wanted - sum(one.wanted for one in old)
    return new.wanted + max(0, min(room, int(spec["replicas"]) - new.wanted))


def _old_scales(spec: Mapping[str, Any], new: Replicas, old: Sequence[Replicas]) -> dict[str, int]:
    """Old ones shrink as far as availability allows, unhealthy pods first."""
    fewest = spec["replicas"] - surge(spec)[1]
    total = new.wanted + sum(one.wanted for one in old)
    may_go = total - fewest - (new.wanted - new.available)
    scales = {one.name: one.wanted for one in old}
    if may_go <= 0:
        return {}
    by_age = sorted(old, key=lambda one: (one.created, one.name))
    for one in by_age:
        unhealthy = min(may_go, max(0, one.wanted - one.available))
        scales[one.name] -= unhealthy
        may_go -= unhealthy
    spare = new.available + sum(one.available for one in old) - fewest
    for one in by_age:
        healthy = max(0, min(spare, scales[one.name]))
        scales[one.name] -= healthy
        spare -= healthy
    return scales


def deployment_status(
    spec: Mapping[str, Any],
    status: Mapping[str, Any],
    *,
    generation: int,
    new: Replicas | None,
    old: Sequence[Replicas],
    now: datetime,
) -> dict[str, Any]:
    """What the Deployment's status says of its ReplicaSets."""
    every = [*([new] if new else []), *old]
    total, available = sum(one.present for one in every), sum(one.available for one in every)
    result: dict[str, Any] = {
        **status,
        "observedGeneration": generation,
        "replicas": total,
        "updatedReplicas": new.present if new else 0,
        "readyReplicas": sum(one.ready for one in every),
        "availableReplicas": available,
        "unavailableReplicas": max(0, total - available),
    }
    enough = available >= spec["replicas"] - surge(spec)[1]
    result = with_condition(
        result,
        "Available",
        "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
        f"Deployment {'has' if enough else 'does not have'} minimum availability.",
        now=now,
        is_true=enough,
    )
    is_complete = new is not None and new.present == total == available == spec["replicas"]
    reason = "NewReplicaSetAvailable" if is_complete else "ReplicaSetUpdated"
    return _progressing(result, reason, now=now)


def _progressing(status: dict[str, Any], reason: str, *, now: datetime) -> dict[str, Any]:
    conditions = list(status.get("conditions", ()))
    before = next((one for one in conditions if one["type"] == "Progressing"), None)
    if before is not None and before["reason"] == reason:
        return status
    condition = {
        "type": "Progressing",
        "status": "True",
        "reason": reason,
        "message": "ReplicaSet has successfully progressed." if reason == "NewReplicaSetAvailable" else "Updating.",
        "lastUpdateTime": stamp(now),
        "lastTransitionTime": before["lastTransitionTime"] if before else stamp(now),
    }
    return {**status, "conditions": [*(one for one in conditions if one["type"] != "Progressing"), condition]}
