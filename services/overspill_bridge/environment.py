"""The environment of a container, resolved as the kubelet would: envFrom, env, references, $(VAR). Pure.

Values may be secrets: they are never part of a message here. Service links are left out on purpose, because cluster
addresses mean nothing outside.
"""

import re
from collections.abc import Mapping

from msgspec import Struct

from overspill_bridge.wishes import Problem, secrets_may_leave
from overspill_events.names import SECRETS_ANNOTATION
from overspill_events.reasons import SpillReason
from overspill_objects.core import Container, Pod

_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_KEYED_FIELD = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
_REFERENCE = re.compile(r"\$\$|\$\(([-._a-zA-Z][-._a-zA-Z0-9]*)\)")
FIELDS = (
    "metadata.name, metadata.namespace, metadata.uid, metadata.labels['…'], metadata.annotations['…'], "
    "spec.nodeName, spec.serviceAccountName"
)


class Source(Struct, frozen=True, kw_only=True):
    """A ConfigMap or Secret of the pod's namespace that the environment reads."""

    kind: str  # "ConfigMap" | "Secret"
    name: str


Sources = Mapping[Source, Mapping[str, str] | None]  # None: it does not exist


class Environment(Struct, frozen=True, kw_only=True):
    """Variables in their final form, and names from maps that no environment can hold (they are left out)."""

    variables: dict[str, str]
    skipped: tuple[str, ...] = ()


class _Refusal(Exception):  # noqa: N818 -- carries a Problem out of the recursion
    def __init__(self, reason: SpillReason, detail: str) -> None:
        super().__init__(detail)
        self.problem = Problem(reason=reason, detail=detail)


_FROM_KINDS = {"configMapRef": "ConfigMap", "secretRef": "Secret"}
_KEY_KINDS = {"configMapKeyRef": "ConfigMap", "secretKeyRef": "Secret"}


def sources_of(pod: Pod) -> Problem | frozenset[Source]:
    """What has to be read first; a Problem when a Secret is among it and the pod has not let secrets leave."""
    found: set[Source] = set()
    for container in pod.spec.containers:
        for raw in container.env_from:
            found |= {Source(kind=kind, name=raw[key]["name"]) for key, kind in _FROM_KINDS.items() if raw.get(key)}
        for variable in container.env:
            value_from = variable.value_from or {}
            found |= {
                Source(kind=kind, name=value_from[key]["name"])
                for key, kind in _KEY_KINDS.items()
                if value_from.get(key)
            }
    secret = min((source.name for source in found if source.kind == "Secret"), default=None)
    if secret is not None and not secrets_may_leave(pod):
        detail = (
            f"spec.containers[].env: reads Secret {secret}, and metadata.annotations[{SECRETS_ANNOTATION}] is not"
            ' "true"'
        )
        return Problem(reason=SpillReason.UNSUPPORTED, detail=detail)
    return frozenset(found)


def resolve(pod: Pod, container: Container, sources: Sources) -> Environment | Problem:
    """The container's environment, or what keeps it from being known.

    Order as in Kubernetes: envFrom in its order, then env over it; `$(VAR)` sees what was defined before.
    """
    variables: dict[str, str] = {}
    skipped: list[str] = []
    try:
        for index, raw in enumerate(container.env_from):
            for name, value in _from_map(raw, sources, where=f"envFrom[{index}]").items():
                if _NAME.fullmatch(name):
                    variables[name] = value
                else:
                    skipped.append(name)
        for variable in container.env:
            if variable.value_from is None:
                variables[variable.name] = _expand(variable.value, variables)
                continue
            found = _from_reference(pod, variable.name, variable.value_from, sources)
            if found is not None:
                variables[variable.name] = found
    except _Refusal as refusal:
        return refusal.problem
    return Environment(variables=variables, skipped=tuple(sorted(skipped)))


def _from_map(raw: Mapping[str, object], sources: Sources, *, where: str) -> dict[str, str]:
    prefix = str(raw.get("prefix") or "")
    for key, kind in _FROM_KINDS.items():
        reference = raw.get(key)
        if isinstance(reference, Mapping):
            values = sources.get(Source(kind=kind, name=str(reference["name"])))
            if values is None and not reference.get("optional"):
                raise _Refusal(
                    SpillReason.MISSING_REFERENCE, f"{where}.{key}: {kind} {reference['name']} does not exist"
                )
            return {prefix + name: value for name, value in (values or {}).items()}
    return {}


def _from_reference(pod: Pod, name: str, value_from: Mapping[str, object], sources: Sources) -> str | None:
    """The referenced value; None for an optional one that is not there."""
    for key, kind in _KEY_KINDS.items():
        reference = value_from.get(key)
        if isinstance(reference, Mapping):
            values = sources.get(Source(kind=kind, name=str(reference["name"])))
            found = None if values is None else values.get(str(reference["key"]))
            if found is None and not reference.get("optional"):
                what = f"{kind} {reference['name']}" + (
                    "" if values is None else f" has no text under {reference['key']}"
                )
                missing = "" if values is not None else " does not exist"
                raise _Refusal(SpillReason.MISSING_REFERENCE, f"env[{name}].valueFrom.{key}: {what}{missing}")
            return found
    field = value_from.get("fieldRef")
    if isinstance(field, Mapping):
        return _field(pod, name, str(field.get("fieldPath", "")))
    kind = next(iter(value_from), "nothing")
    raise _Refusal(SpillReason.UNSUPPORTED, f"env[{name}].valueFrom.{kind}: cannot be resolved outside the cluster")


def _field(pod: Pod, name: str, path: str) -> str:
    meta = pod.metadata
    if keyed := _KEYED_FIELD.fullmatch(path):
        return (meta.labels if keyed[1] == "labels" else meta.annotations).get(keyed[2], "")
    known = {
        "metadata.name": meta.name,
        "metadata.namespace": meta.namespace,
        "metadata.uid": meta.uid,
        "spec.nodeName": pod.spec.node_name,
        "spec.serviceAccountName": pod.spec.service_account_name,
    }
    if path not in known:
        detail = f"env[{name}].valueFrom.fieldRef.fieldPath: {path!r} has no meaning outside; accepted: {FIELDS}"
        raise _Refusal(SpillReason.UNSUPPORTED, detail)
    return known[path]


def _expand(text: str, variables: Mapping[str, str]) -> str:
    """$(VAR) of a variable defined before; $$ is a dollar sign; an unknown $(VAR) stays as it is."""

    def one(match: re.Match[str]) -> str:
        return "$" if match[1] is None else variables.get(match[1], match[0])

    return _REFERENCE.sub(one, text)


def expand_arguments(arguments: tuple[str, ...], variables: Mapping[str, str]) -> tuple[str, ...]:
    """Command and args with $(VAR) filled in, as the kubelet does."""
    return tuple(_expand(argument, variables) for argument in arguments)
