"""Flavor assignment as Kueue does it, on the neutral cases that apply to flat quota."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from overspill_admitter.quota import Assigned, NoFlavor, Usage, assign, shown
from overspill_events.reasons import DeferReason
from overspill_objects.core import Pod
from overspill_objects.quantity import parse_quantity
from overspill_objects.queues import ClusterQueue, ResourceFlavor
from tests.unit.overspill_admitter.queues import view

CASES = yaml.safe_load((Path(__file__).parents[2] / "cases" / "queueing_flat.yaml").read_text())["cases"]


def queue_of(case: dict[str, Any]) -> ClusterQueue:
    (described,) = case["cluster_queues"]
    groups = [
        {
            "coveredResources": list(group[0]["quota"]),
            "flavors": [
                {
                    "name": entry["flavor"],
                    "resources": [
                        {"name": name, "nominalQuota": quota["nominal"]} for name, quota in entry["quota"].items()
                    ],
                }
                for entry in group
            ],
        }
        for group in described["groups"]
    ]
    return view(ClusterQueue, {"metadata": {"name": described["name"]}, "spec": {"resourceGroups": groups}})


def flavors_of(case: dict[str, Any]) -> dict[str, ResourceFlavor]:
    described = {one["name"]: one for one in case.get("resource_flavors", [])}
    names = {entry["flavor"] for group in case["cluster_queues"][0]["groups"] for entry in group}
    return {
        name: view(
            ResourceFlavor,
            {
                "metadata": {"name": name},
                "spec": {
                    "nodeLabels": described.get(name, {}).get("labels", {}),
                    "nodeTaints": described.get(name, {}).get("taints", []),
                },
            },
        )
        for name in names
    }


def usage_of(case: dict[str, Any]) -> Usage:
    usage = Usage()
    for queue in case.get("usage", {}).values():
        for key, amount in queue.items():
            flavor, resource = key.split("/", 1)
            usage.charge({resource: flavor}, {resource: parse_quantity(amount)})
    return usage


def asked_of(case: dict[str, Any]) -> tuple[Pod, dict[str, Decimal]]:
    (pending,) = case["pending"]
    (podset,) = pending["podsets"]
    count = podset["count"] - pending.get("reclaimable", {}).get(podset["name"], 0)
    spec = {"tolerations": podset.get("tolerations", []), "nodeSelector": podset.get("node_selector", {})}
    requests = {name: parse_quantity(amount) * count for name, amount in podset["requests"].items()}
    return view(Pod, {"spec": spec}), requests | {"pods": Decimal(count)}


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_flavor_assignment(case: dict[str, Any]) -> None:
    """Which flavor each resource gets, or why none; in Kueue's own words."""
    pod, requests = asked_of(case)
    answer = assign(queue_of(case), pod, requests, usage=usage_of(case), flavors=flavors_of(case), veto=lambda _: None)
    (expected,) = case["expect"]["podsets"].values()
    if case["expect"]["mode"] == "Fit":
        assert isinstance(answer, Assigned)
        assert answer.flavors == {resource: one["flavor"] for resource, one in expected["flavors"].items()}
        return
    assert isinstance(answer, NoFlavor)
    wanted = {"NoFit": DeferReason.NEVER_FITS, "Preempt": DeferReason.NO_QUOTA}
    assert answer.reason is wanted[case["expect"]["mode"]]
    assert sorted(answer.detail.split("; ")) == expected["reasons"]


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("memory", 10 << 20, "10Mi"), ("memory", 3 << 30, "3Gi"), ("memory", 1000, "1000"), ("cpu", 0.5, "500m"),
        ("nvidia.com/gpu", 8, "8"), ("memory", 0, "0"), ("hugepages-2Mi", 4 << 20, "4Mi"), ("cpu", 12, "12"),
    ],
)  # fmt: skip
def test_amounts_as_people_write_them(resource: str, amount: float, text: str) -> None:
    """Bytes with a suffix, fractions in thousandths, never an exponent."""
    assert shown(resource, amount) == text
