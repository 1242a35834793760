"""What the demo puts into a cluster is what `deploy/` puts there, and everything that it makes can be found again."""

from pathlib import Path

import yaml

from overspill_demo import objects
from overspill_demo.ground import inventory
from overspill_demo.ground.preparing import disturbs
from overspill_demo.scenario import built_in, load
from overspill_events import names
from overspill_objects.core import Node, NodeStatus
from overspill_objects.meta import ObjectMeta
from overspill_service.crds import definitions

REPOSITORY = Path(__file__).parents[3]


def documents(path: str) -> list:
    """All documents of a file of the repository."""
    return list(yaml.safe_load_all((REPOSITORY / path).read_text()))


def test_the_policies_are_those_of_the_deployment():
    shipped = [document for _, document in inventory.policies()]
    assert shipped == documents("deploy/base/policies/mutating.yaml")


def test_the_priorities_are_those_of_the_deployment():
    deployed = {
        one["metadata"]["name"]: (one["value"], one["preemptionPolicy"])
        for one in documents("deploy/base/policies/priorities.yaml")
    }
    assert {
        one["metadata"]["name"]: (one["value"], one["preemptionPolicy"]) for one in objects.priority_classes()
    } == deployed


def test_everything_that_the_story_makes_carries_the_mark():
    scenario = load(built_in())
    made = [
        *objects.namespaces(),
        *objects.priority_classes(),
        *objects.queues(scenario, held=True),
        objects.job(scenario.research[0]),
        objects.deployment(scenario.inference[0]),
        objects.disruption_budget(scenario.inference[0], frozen=False),
        *(inventory.marked(document) for _, document in inventory.policies()),
        *(inventory.marked(document) for document in definitions()),
    ]
    key, value = inventory.MARK.split("=")
    assert all(one["metadata"]["labels"][key] == value for one in made)
    # A mark must not turn the story's pods into something that their owners do not select.
    assert "managed-by" not in str(objects.deployment(scenario.inference[0])["spec"])


def test_what_is_cluster_wide_is_removed_by_kind():
    kinds = {resource.kind for resource, _ in inventory.MARKED}
    scenario = load(built_in())
    wide = [one for one in objects.queues(scenario, held=True) if "namespace" not in one["metadata"]]
    assert {one["kind"] for one in (*wide, *objects.namespaces(), *objects.priority_classes())} <= kinds
    assert {"Node", "CustomResourceDefinition", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"} <= kinds


def test_gpus_that_are_not_the_demos_would_be_counted():
    eight = NodeStatus(allocatable={names.GPU_RESOURCE: "8"})
    assert disturbs(Node(metadata=ObjectMeta(name="n")), was_here=False) is None
    assert "8 GPUs of its own" in (disturbs(Node(metadata=ObjectMeta(name="n"), status=eight), was_here=False) or "")
    ours = ObjectMeta(name="n", labels=dict([inventory.NODES_MARK.split("=")]))
    assert disturbs(Node(metadata=ours, status=eight), was_here=True) is None


def test_a_virtual_node_is_somebodys_unless_a_demo_was_here():
    virtual = Node(metadata=ObjectMeta(name="v", labels={names.VIRTUAL_LABEL: "true"}))
    assert "virtual node" in (disturbs(virtual, was_here=False) or "")
    assert disturbs(virtual, was_here=True) is None
