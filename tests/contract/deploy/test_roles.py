"""RBAC in deploy/ is exactly what the code declares: a missing or an unused verb fails, naming service and verb."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from overspill_kube.grants import Permission, everywhere, permissions, within
from overspill_kube.resources import PODS
from overspill_service import crds, credentials
from tests.support.manifests import DEPLOY, INSTALL, SERVICES, documents, granted, name_of

ROOT = DEPLOY.parent


def declared(service: str) -> frozenset[Permission]:
    return permissions(importlib.import_module(f"overspill_{service}.permissions").PERMISSIONS)


def said(service: str, permission: Permission) -> str:
    where = permission.namespace or "everywhere"
    what = f"{permission.group}/{permission.resource}".lstrip("/") + (f" {permission.name}" if permission.name else "")
    return f"{service}: {permission.verb} {what} {where}"


def in_files(service: str) -> frozenset[Permission]:
    path = DEPLOY / "base" / service / "rbac.yaml"
    return granted(documents(path), f"overspill-{service}") if path.exists() else frozenset()


@pytest.mark.parametrize("service", SERVICES)
def test_roles_are_what_the_code_declares(service: str) -> None:
    missing = sorted(said(service, one) for one in declared(service) - in_files(service))
    unused = sorted(said(service, one) for one in in_files(service) - declared(service))
    assert (missing, unused) == ([], [])


@pytest.mark.parametrize("service", SERVICES)
def test_the_rendered_roles_are_the_same(service: str) -> None:
    assert granted(documents(INSTALL), f"overspill-{service}") == in_files(service)


def test_the_credentials_job_may_make_secrets_and_no_more() -> None:
    assert granted(documents(INSTALL), "overspill-credentials") == permissions(credentials.grants("overspill-system"))


def test_the_crds_job_may_define_kinds_and_no_more() -> None:
    """It cannot even read what there is; which kinds, a policy says."""
    assert granted(documents(INSTALL), "overspill-crds") == permissions(crds.GRANTS)
    assert {(one.resource, one.verb) for one in permissions(crds.GRANTS)} == {("customresourcedefinitions", "create")}


def test_no_wildcards_and_nothing_that_raises_ones_rights() -> None:
    for document in documents(INSTALL):
        for rule in document.get("rules") or () if document["kind"] in {"Role", "ClusterRole"} else ():
            words = {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
            assert "*" not in words, name_of(document)
            assert not words & {"escalate", "bind", "impersonate", "pods/exec", "serviceaccounts/token"}, name_of(
                document
            )
            assert "nonResourceURLs" not in rule, name_of(document)


@pytest.mark.parametrize("service", SERVICES)
def test_kinds_that_the_code_names_are_declared(service: str) -> None:
    """Whoever adds an informer on a kind without declaring it hears of it here, without a cluster."""
    sources = [
        path for path in Path(ROOT / "services" / f"overspill_{service}").glob("*.py") if path.name != "permissions.py"
    ]
    followed = {
        name for path in sources for name in re.findall(r"Informer\(\s*\w[\w.]*,\s*([A-Z_]+)\b", path.read_text())
    }
    resources = importlib.import_module("overspill_kube.resources")
    watched = {(one.group, one.resource) for one in declared(service) if one.verb == "watch"}
    wanted = {(getattr(resources, name).group, getattr(resources, name).plural) for name in followed}
    assert wanted <= watched


def test_swallowing() -> None:
    """A verb that holds everywhere is not declared a second time for a namespace."""
    wide = Permission(namespace="", group="", resource="pods", name="", verb="get")
    assert permissions((*everywhere(PODS.rule("get")), *within("a", PODS.rule("get"), names=("x",)))) == {wide}
