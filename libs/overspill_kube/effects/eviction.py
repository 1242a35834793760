"""Evictions through the Eviction API: the only way in which Overspill makes a pod leave.

A budget is used up before the UID precondition is looked at, so the pod is read live first; the precondition stays, for
the moment in between. A pod that has finished or is still Pending is deleted by the server without a look at any
budget; whether that is wanted is for the caller to decide.
"""

from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from overspill_kube.client import Client, refusal_of
from overspill_kube.effects.fence import Target
from overspill_kube.outcomes import (
    AlreadyExists,
    Blocked,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Refusal,
    Replaced,
    SeveralPdbs,
    Throttled,
)
from overspill_kube.resources import PODS
from overspill_objects.core import Pod

RULES: Final = (PODS.rule("get"), PODS.rule("create", subresource="eviction"))


class Evicted(Struct, frozen=True):
    """The server has accepted it (in a dry run: would accept it); the pod terminates."""


class Gone(Struct, frozen=True):
    """The pod had left, or was already leaving (`terminating`): nothing was evicted by this call."""

    terminating: bool = False


class Refused(Struct, frozen=True):
    """Not evicted for a reason without a type of its own; `forbidden` when a permission is missing."""

    message: str
    forbidden: bool = False


PdbBlocked = Blocked

EvictionOutcome: TypeAlias = Evicted | PdbBlocked | Throttled | Gone | Replaced | SeveralPdbs | Refused


async def evict(client: Client, pod: Target, *, dry_run: bool = False, grace: int | None = None) -> EvictionOutcome:
    """Ask the API server to evict exactly this pod, budgets respected. A dry run evaluates them and changes nothing.

    `grace` in seconds; None: the pod's own.     Raises KubeUnavailable: the pod may or may not have been evicted, read
    it again before anything else.
    """
    found = await client.get(PODS, pod.name, pod.namespace)
    if (absence := _absence(found, pod)) is not None:
        return absence
    options: dict[str, Any] = {"preconditions": {"uid": pod.uid}}
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    if dry_run:
        options["dryRun"] = ["All"]
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": options,
    }
    path = PODS.path(namespace=pod.namespace, name=pod.name, subresource="eviction")
    params = {"dryRun": "All"} if dry_run else None
    reply = await client.transport.request("POST", path, body=msgspec.json.encode(body), params=params)
    if 200 <= reply.status < 300:  # noqa: PLR2004
        return Evicted()
    return _no(refusal_of(reply, f"evict {pod.namespace}/{pod.name}"))


def _absence(found: Pod | None, pod: Target) -> Gone | Replaced | None:
    """Why there is nothing to evict; None when the pod is there and stays."""
    if found is None:
        return Gone()
    if found.metadata.uid != pod.uid:
        return Replaced(f"pod {pod.namespace}/{pod.name} is another one now: {found.metadata.uid}")
    return None if found.metadata.deletion_timestamp is None else Gone(terminating=True)


def _no(refusal: Refusal) -> EvictionOutcome:
    match refusal:
        case NotFound():
            return Gone()
        case (Blocked() | Throttled() | Replaced() | SeveralPdbs()) as outcome:
            return outcome
        case Forbidden(message):
            return Refused(message, forbidden=True)
        case (Conflict() | Invalid() | AlreadyExists()) as other:
            return Refused(other.message)
