"""What every manifest must be, judged without a cluster: labels, security, probes, names that the code declares."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from overspill_events import names
from overspill_kube import resources
from overspill_service import crds
from tests.support.manifests import COMPONENT, DEPLOY, INSTALL, SERVICES, documents, files, granted, name_of, pod_specs

RENDERED = documents(INSTALL)
WORKLOADS = {name_of(document): (document, spec) for document, spec in pod_specs(RENDERED)}
OUR_NAMES = {value for value in vars(names).values() if isinstance(value, str) and value.startswith(f"{names.DOMAIN}/")}
LOCAL_WORDS = re.compile(r"overspill\.dev/[a-z-]+")


def by_kind(kind: str) -> list[dict]:
    return [document for document in RENDERED if document["kind"] == kind]


def test_everything_carries_our_labels() -> None:
    for document in RENDERED:
        labels = document["metadata"].get("labels") or {}
        assert labels.get("app.kubernetes.io/name") == "overspill", name_of(document)
        assert labels.get(names.PART_OF_LABEL) == names.PART_OF, name_of(document)


def test_everything_of_a_namespace_is_in_ours() -> None:
    """Except the bridge's right to the leases of nodes."""
    elsewhere = {
        name_of(one) for one in RENDERED if one["metadata"].get("namespace", "overspill-system") != "overspill-system"
    }
    assert elsewhere == {"Role/kube-node-lease/overspill-bridge", "RoleBinding/kube-node-lease/overspill-bridge"}
    assert names.SYSTEM_NAMESPACE == "overspill-system"


def test_the_namespace_is_restricted() -> None:
    labels = by_kind("Namespace")[0]["metadata"]["labels"]
    assert {labels[f"pod-security.kubernetes.io/{mode}"] for mode in ("enforce", "audit", "warn")} == {"restricted"}


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_pods_are_as_narrow_as_they_can_be(name: str) -> None:
    _, spec = WORKLOADS[name]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    assert all("hostPath" not in volume for volume in spec["volumes"])
    for container in spec["containers"]:
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["readOnlyRootFilesystem"] is True
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}
        assert container["resources"]["limits"].keys() == {"memory"}, "no limit of CPU: it only adds delay"


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_a_token_is_in_a_pod_exactly_when_its_account_may_do_something(name: str) -> None:
    _, spec = WORKLOADS[name]
    has_rights = bool(granted(RENDERED, spec.get("serviceAccountName", "default")))
    assert spec.get("automountServiceAccountToken", True) is has_rights


@pytest.mark.parametrize("service", SERVICES)
def test_services_have_probes_and_an_account_of_their_own(service: str) -> None:
    document, spec = WORKLOADS[f"Deployment/overspill-system/overspill-{service}"]
    container = spec["containers"][0]
    assert {
        probe: container[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")
    } == {
        "startupProbe": "/livez",
        "livenessProbe": "/livez",
        "readinessProbe": "/readyz",
    }
    assert container["ports"] == [{"name": "http", "containerPort": 8080}]
    assert spec["serviceAccountName"] == f"overspill-{service}"
    assert container["args"] == [f"overspill_{service}"]
    assert document["spec"]["selector"]["matchLabels"][COMPONENT] == service
    assert f"ServiceAccount/overspill-system/overspill-{service}" in {name_of(one) for one in RENDERED}


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_each_pod_is_chosen_by_a_network_policy(name: str) -> None:
    _, component = WORKLOADS[name][0], WORKLOADS[name][0]["metadata"]["labels"][COMPONENT]
    chosen = [
        policy
        for policy in by_kind("NetworkPolicy")
        if policy["spec"]["podSelector"].get("matchLabels", {}).get(COMPONENT) == component
    ]
    assert len(chosen) == 1


def test_nothing_is_allowed_by_default() -> None:
    default = next(policy for policy in by_kind("NetworkPolicy") if not policy["spec"]["podSelector"])
    assert default["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in default["spec"]
    world = {name_of(one): one for one in by_kind("NetworkPolicy") if "ipBlock" in str(one)}
    assert list(world) == ["NetworkPolicy/overspill-system/overspill-bridge"], "the bridge alone reaches every port"
    blocks = [
        to["ipBlock"]
        for one in world.values()
        for rule in one["spec"]["egress"]
        for to in rule.get("to", ())
        if "ipBlock" in to
    ]
    assert blocks == [
        {"cidr": "0.0.0.0/0", "except": ["169.254.169.254/32"]},
        {"cidr": "::/0", "except": ["fd00:ec2::254/128"]},
    ], "a cloud's metadata service hands out the node's credentials"


def test_what_reaches_any_host_does_so_on_the_api_servers_ports() -> None:
    for policy in by_kind("NetworkPolicy"):
        for rule in policy["spec"].get("egress", ()):
            if "to" not in rule:
                assert {one["port"] for one in rule["ports"]} == {443, 6443}, name_of(policy)


def test_budgets_never_block_a_drain() -> None:
    replicas = {one["metadata"]["labels"][COMPONENT]: one["spec"]["replicas"] for one in by_kind("Deployment")}
    for budget in by_kind("PodDisruptionBudget"):
        assert budget["spec"]["maxUnavailable"] == 1
        assert replicas[budget["spec"]["selector"]["matchLabels"][COMPONENT]] >= 2
    assert replicas["recorder"] == 1, "one writer of the ledger"


def test_selectors_choose_pods_that_there_are() -> None:
    pods = [document["spec"]["template"]["metadata"]["labels"] for document, _ in WORKLOADS.values()]
    for document in (*by_kind("Service"), *by_kind("PodDisruptionBudget"), *by_kind("NetworkPolicy")):
        selector = document["spec"].get("selector") or document["spec"].get("podSelector")
        wanted = selector.get("matchLabels", selector)
        assert any(wanted.items() <= labels.items() for labels in pods), name_of(document)


@pytest.mark.parametrize("path", [*files(), *DEPLOY.rglob("*.env")], ids=lambda path: str(path.relative_to(DEPLOY)))
def test_names_of_our_domain_are_declared(path: Path) -> None:
    unknown = set(LOCAL_WORDS.findall(path.read_text())) - OUR_NAMES
    assert unknown == set()


def test_policies_bind_and_say_why() -> None:
    kinds = ("MutatingAdmissionPolicy", "ValidatingAdmissionPolicy")
    for kind in kinds:
        policies = {one["metadata"]["name"]: one for one in by_kind(kind)}
        assert policies
        assert {one["spec"]["policyName"] for one in by_kind(f"{kind}Binding")} == set(policies)
    for policy in by_kind("ValidatingAdmissionPolicy"):
        assert policy["spec"]["failurePolicy"] == "Fail"
        assert all("message" in one or "messageExpression" in one for one in policy["spec"]["validations"])
    for policy in by_kind("MutatingAdmissionPolicy"):
        assert "objectSelector" in policy["spec"]["matchConstraints"], "only objects with our labels are touched"


def test_priorities_are_one_class_per_number_of_gpus() -> None:
    classes = {one["metadata"]["name"]: one["value"] for one in by_kind("PriorityClass")}
    assert classes == {f"{names.GPU_PRIORITY_CLASS_PREFIX}{gpus}": 100 + gpus for gpus in range(1, 9)}
    assert not any(one.get("globalDefault") for one in by_kind("PriorityClass"))


def test_images_have_versions_and_no_host() -> None:
    for _, spec in WORKLOADS.values():
        for container in spec["containers"]:
            image, _, tag = container["image"].partition(":")
            assert image in {"overspill", "nats"}
            assert tag not in {"", "latest"}


def test_the_queues_kinds_are_those_that_the_admitter_reads() -> None:
    kinds = {one["spec"]["names"]["plural"]: one for one in crds.definitions()}
    for kind in (resources.CLUSTER_QUEUES, resources.LOCAL_QUEUES, resources.RESOURCE_FLAVORS):
        spec = kinds.pop(kind.plural)["spec"]
        assert (spec["group"], spec["names"]["kind"]) == (kind.group, kind.kind)
        assert spec["scope"] == ("Namespaced" if kind.namespaced else "Cluster")
        assert {version["name"] for version in spec["versions"] if version["served"]} == set(resources.KUEUE_VERSIONS)
    assert kinds == {}


def test_the_queues_kinds_carry_our_labels() -> None:
    """Like everything of an installation, so that they can be told from Kueue's own."""
    job = WORKLOADS["Job/overspill-system/overspill-crds"][0]["metadata"]["labels"]
    for definition in crds.definitions():
        assert definition["metadata"]["labels"].items() <= job.items()
        assert {"app.kubernetes.io/name", names.PART_OF_LABEL} <= set(definition["metadata"]["labels"])


def test_no_manifest_would_overwrite_the_definitions_of_a_kueue_that_is_there() -> None:
    found = [*RENDERED, *(document for path in files() for document in documents(path))]
    assert not [name_of(one) for one in found if one["kind"] == "CustomResourceDefinition"]


def test_the_policy_about_definitions_names_those_that_the_job_makes() -> None:
    policy = next(one for one in by_kind("ValidatingAdmissionPolicy") if one["metadata"]["name"] == "overspill-crds")
    validation, _ = policy["spec"]["validations"]
    allowed = re.findall(r'"([^"]+)"', validation["expression"])
    assert sorted(allowed) == sorted(one["metadata"]["name"] for one in crds.definitions())


def test_install_yaml_holds_every_object_of_base_as_written() -> None:
    """Without kustomize only what kustomize leaves alone can be compared; tests/cluster renders and compares it all."""
    rendered = {name_of(one): one for one in RENDERED}
    for path in files():
        if "base" not in path.parts:
            continue
        for document in documents(path):
            found = rendered[name_of(document)]
            if document["kind"] in {"Deployment", "StatefulSet", "Job"}:
                assert set(document["spec"]) <= set(found["spec"])
            elif "spec" in document:
                assert unwrapped(found["spec"]) == unwrapped(document["spec"]), name_of(document)
            if "rules" in document:
                assert found["rules"] == document["rules"], name_of(document)


def unwrapped(value: Any) -> Any:
    """Long expressions are wrapped in one way here and in another by kustomize."""
    if isinstance(value, dict):
        return {key: unwrapped(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [unwrapped(inner) for inner in value]
    return " ".join(value.split()) if isinstance(value, str) else value
