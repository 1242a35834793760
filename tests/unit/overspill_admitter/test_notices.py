"""What a queue object asks for and does not get."""

import pytest

from overspill_admitter.notices import notice

QUOTA = "spec.resourceGroups.flavors.resources"
GROUP = {
    "coveredResources": ["cpu"],
    "flavors": [
        {"name": "a", "resources": [{"name": "cpu", "nominalQuota": 1, "borrowingLimit": "5"}]},
        {"name": "b", "resources": [{"name": "cpu", "nominalQuota": 1, "lendingLimit": None, "colour": "red"}]},
    ],
}


@pytest.mark.parametrize(
    ("kind", "spec", "expected"),
    [
        ("ClusterQueue", {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": []}], "stopPolicy": "Hold"}, ""),
        ("ClusterQueue", {"cohort": "", "preemption": {}}, ""),
        (
            "ClusterQueue",
            {"cohort": "gpu", "preemption": {"withinClusterQueue": "LowerPriority"}},
            "accepted; not honoured: spec.cohort, spec.preemption",
        ),
        (
            "ClusterQueue",
            {"resourceGroups": [GROUP]},
            f"accepted; not honoured: {QUOTA}.borrowingLimit; unknown: {QUOTA}.colour",
        ),
        ("LocalQueue", {"clusterQueue": "training", "clusterqueue": "x"}, "accepted; unknown: spec.clusterqueue"),
        (
            "ResourceFlavor",
            {"nodeLabels": {"anything": "goes"}, "topologyName": "t"},
            "accepted; not honoured: spec.topologyName",
        ),
        ("ResourceFlavor", {}, ""),
    ],
)
def test_wishes_that_do_not_come_true_are_named(kind: str, spec: dict[str, object], expected: str) -> None:
    """Kueue's own fields as not honoured, others as unknown; nothing is refused."""
    assert notice(kind, spec) == expected
