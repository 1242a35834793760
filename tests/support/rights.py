"""What services were granted, compared with what they asked for: deployed roles against an API server's audit log.

Pure. A request that no role allows is a missing rule; a rule that no request used is one too many; in observe mode every
write is one too many. All are told with the service and the verb, so that whoever reads it knows what to put right.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from overspill_events.names import SYSTEM_NAMESPACE
from overspill_kube.grants import Permission

ACCOUNT_PREFIX: Final = f"system:serviceaccount:{SYSTEM_NAMESPACE}:overspill-"
# In every line that can be ours, in bytes: most of a log is other people's, and parsing JSON is what takes the time.
MARK: Final = ACCOUNT_PREFIX.encode()
POLICY_WORD: Final = "ValidatingAdmissionPolicy"  # in the message of every refusal by one
LEASES: Final = ("coordination.k8s.io", "leases")
WRITES: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})
UNAUTHORIZED: Final = 401
SHOWN: Final = 3  # examples of one refusal


class Request(Struct, frozen=True, kw_only=True):
    """One request of a service as the API server noted it. `resource` has its subresource behind a slash; it is empty
    for what is no object, such as discovery (`name` is the URL then).
    """

    service: str
    verb: str
    group: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    code: int = 0
    allowed: bool = True
    by: str = ""  # which binding and role allowed it
    message: str = ""

    @property
    def what(self) -> str:
        """Verb, kind and object, for people."""
        kind = f"{self.group}/{self.resource}" if self.group else self.resource
        thing = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return " ".join(part for part in (self.verb, kind, thing) if part)


class Finding(Struct, frozen=True, kw_only=True, order=True):
    """Something that roles and requests do not agree on."""

    service: str
    verb: str
    resource: str
    problem: str

    def __str__(self) -> str:
        return f"{self.service}: {self.verb} {self.resource}: {self.problem}"


# --- the audit log ------------------------------------------------------------------------------------------------------


def requests_of(lines: Iterable[bytes]) -> Iterator[Request]:
    """The services' requests in lines of an audit log. Raises ValueError for a line of ours that is no JSON."""
    for line in lines:
        if MARK not in line:
            continue
        event = json.loads(line)
        username = event["user"]["username"]
        if username.startswith(ACCOUNT_PREFIX):
            yield _request(username.removeprefix(ACCOUNT_PREFIX), event)


def _request(service: str, event: Mapping[str, Any]) -> Request:
    target, status = event.get("objectRef") or {}, event.get("responseStatus") or {}
    notes = event.get("annotations") or {}
    resource, subresource = target.get("resource", ""), target.get("subresource", "")
    return Request(
        service=service,
        verb=event["verb"],
        group=target.get("apiGroup", ""),
        resource=f"{resource}/{subresource}" if subresource else resource,
        namespace=target.get("namespace", ""),
        name=target.get("name", "") if resource else event["requestURI"].partition("?")[0],
        code=status.get("code", 0),
        allowed=notes.get("authorization.k8s.io/decision") != "forbid",
        by=notes.get("authorization.k8s.io/reason", ""),
        message=status.get("message", ""),
    )


# --- the comparison -----------------------------------------------------------------------------------------------------


def missing(requests: Iterable[Request], roles: Mapping[str, frozenset[Permission]]) -> list[Finding]:
    """Requests that were refused, or allowed by something else than their service's role; empty when there are none."""
    troubled: dict[Finding, set[str]] = {}
    for request in requests:
        if (problem := _problem(request, _widest(roles.get(request.service, frozenset()), request))) is not None:
            found = Finding(service=request.service, verb=request.verb, resource=_kind(request), problem=problem)
            troubled.setdefault(found, set()).add(request.what)
    return _with_examples(troubled)


def unused(requests: Iterable[Request], roles: Mapping[str, frozenset[Permission]]) -> list[Finding]:
    """Rules that no request needed; empty when each had its use."""
    used: dict[str, set[Permission]] = {service: set() for service in roles}
    for request in requests:
        rule = _widest(roles.get(request.service, frozenset()), request)
        if rule is not None and request.allowed:
            used[request.service].add(rule)
    return sorted(
        _of(service, permission, "its role grants this, and no request needed it")
        for service, permissions in roles.items()
        for permission in permissions - used[service]
    )


def refusals(requests: Iterable[Request]) -> list[Request]:
    """Requests that were refused for want of rights or by one of our policies."""
    return [request for request in requests if _is_refused(request)]


def writes(requests: Iterable[Request]) -> list[Finding]:
    """Requests to change something, dry runs too, but for those about the Lease by which a service leads. Nothing else
    is a service's own: others read it, or it is part of somebody's work.
    """
    changes: dict[Finding, set[str]] = {}
    for request in requests:
        if request.verb in WRITES and not _is_own_lease(request):
            found = Finding(service=request.service, verb=request.verb, resource=_kind(request), problem="is a write")
            changes.setdefault(found, set()).add(request.what)
    return _with_examples(changes)


def _is_own_lease(request: Request) -> bool:
    """The bridge has one for each virtual node, whose name follows."""
    is_lease = (request.group, request.resource, request.namespace) == (*LEASES, SYSTEM_NAMESPACE)
    return is_lease and f"{request.name}-".startswith(f"overspill-{request.service}-")


def _is_refused(request: Request) -> bool:
    return not request.allowed or request.code == UNAUTHORIZED or POLICY_WORD in request.message


def _problem(request: Request, rule: Permission | None) -> str | None:
    if not request.allowed:
        return "refused, no rule of its role allows it"
    if _is_refused(request):
        return f"refused: {request.message or request.code}"
    if request.resource and rule is None:
        return f"allowed, but not by its role: {request.by}"
    return None


def _widest(permissions: frozenset[Permission], request: Request) -> Permission | None:
    """The rule that allows a request. Of several the one with the fewest limits: the others are not needed then."""
    return min((one for one in permissions if covers(one, request)), key=_limits, default=None)


def _limits(permission: Permission) -> tuple[bool, bool, Permission]:
    return bool(permission.namespace), bool(permission.name), permission


def covers(permission: Permission, request: Request) -> bool:
    """Whether RBAC allows the request by this rule. A create has no name yet, unless it is a subresource's."""
    named = "" if request.verb == "create" and "/" not in request.resource else request.name
    return (
        (permission.group, permission.resource, permission.verb) == (request.group, request.resource, request.verb)
        and permission.namespace in {"", request.namespace}
        and permission.name in {"", named}
    )


def _kind(request: Request) -> str:
    if not request.resource:
        return request.name
    return f"{request.group}/{request.resource}" if request.group else request.resource


def _of(service: str, permission: Permission, problem: str) -> Finding:
    kind = f"{permission.group}/{permission.resource}" if permission.group else permission.resource
    where = f" in {permission.namespace}" if permission.namespace else ""
    named = f" named {permission.name}" if permission.name else ""
    return Finding(service=service, verb=permission.verb, resource=f"{kind}{named}{where}", problem=problem)


def _with_examples(found: Mapping[Finding, set[str]]) -> list[Finding]:
    return sorted(
        msgspec.structs.replace(one, problem=f"{one.problem} ({_examples(several)})") for one, several in found.items()
    )


def _examples(several: set[str]) -> str:
    more = f" and {len(several) - SHOWN} more" if len(several) > SHOWN else ""
    return ", ".join(sorted(several)[:SHOWN]) + more
