"""The comparison of roles with an audit log says of every verb too few and every verb too many whose it is."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from overspill_kube.grants import Permission
from tests.support.manifests import INSTALL, SERVICES, documents, granted
from tests.support.rights import Request, covers, missing, refusals, requests_of, unused, writes

DEPLOYED = {service: granted(documents(INSTALL), f"overspill-{service}") for service in SERVICES}


def line(service: str, verb: str, resource: str, **more: Any) -> bytes:
    """A line as the API server writes it."""
    kind, _, subresource = resource.partition("/")
    target = {
        "resource": kind,
        "subresource": subresource,
        "apiGroup": more.get("group", ""),
        "namespace": more.get("namespace", ""),
        "name": more.get("name", ""),
    }
    event = {
        "kind": "Event",
        "stage": "ResponseComplete",
        "requestURI": more.get("uri", "/api/v1/things?limit=500"),
        "verb": verb,
        "user": {"username": more.get("user", f"system:serviceaccount:overspill-system:overspill-{service}")},
        "responseStatus": {"code": more.get("code", 200), "message": more.get("message", "")},
        "annotations": {
            "authorization.k8s.io/decision": more.get("decision", "allow"),
            "authorization.k8s.io/reason": more.get("reason", ""),
        },
    }
    if resource:
        event["objectRef"] = {name: value for name, value in target.items() if value}
    return json.dumps(event).encode()


def request_for(service: str, right: Permission) -> Request:
    """A request that needs just this right."""
    return Request(
        service=service,
        verb=right.verb,
        group=right.group,
        resource=right.resource,
        namespace=right.namespace or "anywhere",
        name=right.name or "any",
    )


FULL_USE = [request_for(service, right) for service, rights in DEPLOYED.items() for right in rights]
EVERY_RIGHT = [(service, right) for service, rights in DEPLOYED.items() for right in sorted(rights)]


def ident(value: object) -> str:
    if not isinstance(value, Permission):
        return str(value)
    return "-".join(part for part in (value.verb, value.group, value.resource, value.name, value.namespace) if part)


def pods(verb: str, **more: str) -> Permission:
    return Permission(**{"namespace": "", "group": "", "resource": "pods", "name": "", "verb": verb, **more})


# --- deploy/ as it is, with one verb less or more ------------------------------------------------------------------------


def test_full_use_of_the_deployed_roles_is_fine() -> None:
    assert missing(FULL_USE, DEPLOYED) == []
    assert unused(FULL_USE, DEPLOYED) == []


@pytest.mark.parametrize(("service", "right"), EVERY_RIGHT, ids=ident)
def test_one_verb_less_is_told(service: str, right: Permission) -> None:
    roles = DEPLOYED | {service: DEPLOYED[service] - {right}}
    refused = [
        msgspec.structs.replace(one, allowed=any(covers(rule, one) for rule in roles[one.service])) for one in FULL_USE
    ]
    (finding,) = missing(refused, roles)
    assert (finding.service, finding.verb) == (service, right.verb)
    assert right.resource in finding.resource
    assert "no rule of its role allows it" in str(finding)


@pytest.mark.parametrize(("service", "right"), EVERY_RIGHT, ids=ident)
def test_one_verb_more_is_told(service: str, right: Permission) -> None:
    """The same, seen from the other side: the role has a rule that no request needs."""
    requests = [one for one in FULL_USE if one != request_for(service, right)]
    (finding,) = unused(requests, DEPLOYED)
    assert (finding.service, finding.verb) == (service, right.verb)
    assert right.resource in finding.resource
    assert "no request needed it" in str(finding)


# --- what a log says -----------------------------------------------------------------------------------------------------


def test_a_request_is_read_whole() -> None:
    text = line("evictor", "create", "pods/eviction", namespace="n", name="p", code=201, reason="RBAC: allowed by …")
    assert list(requests_of([text])) == [
        Request(
            service="evictor",
            verb="create",
            resource="pods/eviction",
            namespace="n",
            name="p",
            code=201,
            by="RBAC: allowed by …",
        )
    ]


def test_others_are_nobodys_business() -> None:
    lines = [
        line("", "delete", "pods", user="admin"),
        line("", "delete", "pods", user="system:serviceaccount:other:overspill-bridge"),
        # Somebody speaks about our account.
        line(
            "",
            "create",
            "subjectaccessreviews",
            user="admin",
            uri="/system:serviceaccount:overspill-system:overspill-bridge",
        ),
    ]
    assert list(requests_of(lines)) == []


def test_discovery_needs_no_rule_but_may_not_be_refused() -> None:
    fine = line("admitter", "get", "", uri="/apis/kueue.x-k8s.io")
    refused = line("admitter", "get", "", uri="/apis/kueue.x-k8s.io?x=1", decision="forbid", code=403)
    assert missing(requests_of([fine]), {"admitter": frozenset()}) == []
    (finding,) = missing(requests_of([refused]), {"admitter": frozenset()})
    assert finding.resource == "/apis/kueue.x-k8s.io"


def test_a_refusal_names_service_verb_kind_and_objects() -> None:
    lines = [
        line("evictor", "get", "poddisruptionbudgets", group="policy", namespace="n", name=name, decision="forbid")
        for name in ("a", "a", "b", "c", "d")
    ]
    (finding,) = missing(requests_of(lines), {"evictor": frozenset()})
    assert str(finding) == (
        "evictor: get policy/poddisruptionbudgets: refused, no rule of its role allows it"
        " (get policy/poddisruptionbudgets n/a, get policy/poddisruptionbudgets n/b,"
        " get policy/poddisruptionbudgets n/c and 1 more)"
    )


def test_a_right_that_comes_from_elsewhere_is_told() -> None:
    """A role of the cluster's own that serves everybody hides what ours lacks."""
    text = line("sampler", "list", "pods", reason='RBAC: allowed by ClusterRoleBinding "generous"')
    (finding,) = missing(requests_of([text]), {"sampler": frozenset({pods("watch")})})
    assert "allowed, but not by its role" in finding.problem
    assert "generous" in finding.problem


def test_a_policys_refusal_is_one_although_rbac_allowed() -> None:
    message = "ValidatingAdmissionPolicy 'overspill-bridge-nodes' denied request: not yours"
    text = line("bridge", "patch", "pods", code=422, message=message)
    assert len(refusals(requests_of([text]))) == 1
    (finding,) = missing(requests_of([text]), {"bridge": frozenset({pods("patch")})})
    assert "overspill-bridge-nodes" in finding.problem


@pytest.mark.parametrize("code", [404, 409, 422, 429])
def test_answers_about_objects_are_no_refusals(code: int) -> None:
    text = line("bridge", "patch", "pods", code=code, message="pods is busy")
    assert refusals(requests_of([text])) == []


def test_a_token_that_is_not_known_is_a_refusal() -> None:
    assert len(refusals(requests_of([line("bridge", "get", "pods", code=401)]))) == 1


def test_a_refused_request_is_no_use_of_a_rule() -> None:
    text = line("bridge", "get", "pods", decision="forbid")
    assert len(unused(requests_of([text]), {"bridge": frozenset({pods("get")})})) == 1


# --- what was written ----------------------------------------------------------------------------------------------------

LEASES = {"group": "coordination.k8s.io", "namespace": "overspill-system"}


@pytest.mark.parametrize("verb", ["create", "update", "patch", "delete", "deletecollection"])
def test_a_write_names_service_verb_kind_and_objects(verb: str) -> None:
    lines = [line("evictor", verb, "pods/eviction", namespace="n", name=name) for name in ("a", "b")]
    (finding,) = writes(requests_of(lines))
    assert str(finding) == (
        f"evictor: {verb} pods/eviction: is a write ({verb} pods/eviction n/a, {verb} pods/eviction n/b)"
    )


@pytest.mark.parametrize("verb", ["get", "list", "watch"])
def test_reading_is_no_write(verb: str) -> None:
    assert writes(requests_of([line("bridge", verb, "pods", namespace="n", name="p")])) == []


def test_a_refused_write_is_one_too() -> None:
    assert len(writes(requests_of([line("bridge", "patch", "nodes", name="n", decision="forbid", code=403)]))) == 1


def test_only_the_lease_by_which_a_service_leads_is_its_own() -> None:
    own = [
        line("decider", "create", "leases", name="overspill-decider", **LEASES),
        line("bridge", "patch", "leases", name="overspill-bridge-overspill-external", **LEASES),
    ]
    others = [
        line("bridge", "patch", "leases", name="overspill-decider", **LEASES),
        line("decider", "create", "leases", **LEASES),
        line("bridge", "patch", "leases", name="overspill-bridge", **LEASES | {"namespace": "kube-node-lease"}),
        line("bridge", "patch", "configmaps", name="overspill-bridge", namespace="overspill-system"),
    ]
    assert writes(requests_of(own)) == []
    assert sum(len(writes(requests_of([one]))) for one in others) == len(others)


# --- which rule allows what ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("right", "verb", "resource", "allowed"),
    [
        (pods("get"), "get", "pods", True),
        (pods("get"), "list", "pods", False),
        (pods("get"), "get", "pods/status", False),
        (pods("get", group="batch"), "get", "pods", False),
        (pods("get", namespace="n"), "get", "pods", True),
        (pods("get", namespace="m"), "get", "pods", False),
        (pods("get", name="p"), "get", "pods", True),
        (pods("get", name="q"), "get", "pods", False),
        (pods("create", name="p"), "create", "pods", False),  # a create has no name that RBAC could look at
        (pods("create", resource="pods/eviction", name="p"), "create", "pods/eviction", True),
    ],
)
def test_covering(right: Permission, verb: str, resource: str, allowed: bool) -> None:
    request = Request(service="s", verb=verb, resource=resource, namespace="n", name="p")
    assert covers(right, request) is allowed


def test_of_two_rules_for_one_request_the_narrower_is_too_many() -> None:
    roles = {"bridge": frozenset({pods("get"), pods("get", namespace="n", name="p")})}
    (finding,) = unused([Request(service="bridge", verb="get", resource="pods", namespace="n", name="p")], roles)
    assert finding.resource == "pods named p in n"
