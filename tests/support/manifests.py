"""deploy/ as data: every file's documents, the rendered install.yaml, and what a role grants, verb by verb."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from overspill_kube.grants import Permission

DEPLOY = Path(__file__).parents[2] / "deploy"
INSTALL = DEPLOY / "install.yaml"
SERVICES = ("sampler", "decider", "evictor", "admitter", "bridge", "recorder")
COMPONENT = "app.kubernetes.io/component"

Document = dict[str, Any]


@functools.cache
def documents(path: Path) -> list[Document]:
    """The documents of one file; read once, so nobody may change them."""
    return [document for document in yaml.load_all(path.read_text(), yaml.CSafeLoader) if document is not None]


def files() -> list[Path]:
    """Every YAML file of deploy/ that holds objects of a cluster, and not the description of one."""
    found = [path for path in sorted(DEPLOY.rglob("*.yaml")) if path.name != "kustomization.yaml"]
    return [path for path in found if not any(one["apiVersion"].startswith("kind.") for one in documents(path))]


def name_of(document: Document) -> str:
    """Kind, namespace and name, for messages."""
    meta = document["metadata"]
    return "/".join(part for part in (document["kind"], meta.get("namespace", ""), meta["name"]) if part)


def pod_specs(found: list[Document]) -> Iterator[tuple[Document, Document]]:
    """Workloads and their pods' specs."""
    for document in found:
        if document["kind"] in {"Deployment", "StatefulSet", "Job", "DaemonSet"}:
            yield document, document["spec"]["template"]["spec"]


def settings(path: Path) -> dict[str, str]:
    """A file of NAME=value lines."""
    lines = [line.strip() for line in path.read_text().splitlines()]
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def granted(found: list[Document], account: str) -> frozenset[Permission]:
    """What the roles bound to a ServiceAccount of overspill-system allow."""
    roles = {(one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]): one for one in found}
    allowed: set[Permission] = set()
    for binding in found:
        if binding["kind"] not in {"RoleBinding", "ClusterRoleBinding"} or not _binds(binding, account):
            continue
        namespace = binding["metadata"].get("namespace", "")
        kind = binding["roleRef"]["kind"]
        role = roles[kind, namespace if kind == "Role" else "", binding["roleRef"]["name"]]
        for rule in role["rules"]:
            allowed |= {
                Permission(namespace=namespace, group=group, resource=resource, name=name, verb=verb)
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for name in rule.get("resourceNames") or ("",)
                for verb in rule["verbs"]
            }
    return frozenset(allowed)


def _binds(binding: Document, account: str) -> bool:
    wanted = {"kind": "ServiceAccount", "name": account, "namespace": "overspill-system"}
    return wanted in binding["subjects"]
