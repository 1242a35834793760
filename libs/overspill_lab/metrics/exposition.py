"""The series as text, in the names and labels of kube-state-metrics, the DCGM exporter and our own. Pure."""

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Final

from overspill_lab.metrics.measure import HomeNode, Measured

BYTES: Final = frozenset({"memory", "ephemeral-storage"})


def exposition(measured: Measured) -> str:
    """The text format 0.0.4 of all series."""
    return "".join(f"{line}\n" for line in _lines(measured))


def _lines(measured: Measured) -> Iterator[str]:
    yield from _family("overspill_lab_home_gpus_allocatable", "GPUs of each home node.", _allocatable(measured.nodes))
    yield from _family(
        "overspill_lab_home_gpus_requested",
        'GPUs of each home node that pods hold; class="lowest": those of the lowest priority class.',
        _requested(measured.nodes),
    )
    free = measured.allocatable - measured.requested(with_lowest=True)
    yield from _family("overspill_lab_gpus_free", "GPUs of home that nobody holds.", [({}, free)])
    yield from _family("kube_node_status_allocatable", "As in kube-state-metrics.", _node_resources(measured.nodes))
    yield from _family(
        "kube_node_status_condition",
        "As in kube-state-metrics; condition Ready only.",
        (
            ({"node": node.name, "condition": "Ready", "status": status}, int(node.ready is (status == "true")))
            for node in measured.nodes
            for status in ("true", "false")
        ),
    )
    yield from _family(
        "kube_node_spec_unschedulable",
        "As in kube-state-metrics.",
        (({"node": node.name}, int(node.unschedulable)) for node in measured.nodes),
    )
    yield from _family("kube_pod_container_resource_requests", "As in kube-state-metrics.", _requests(measured))
    yield from _family(
        "kube_pod_status_phase",
        "As in kube-state-metrics; only the phase that a pod is in.",
        (
            ({"namespace": namespace, "pod": pod, "uid": uid, "phase": phase}, 1)
            for namespace, pod, uid, phase in measured.phases
        ),
    )
    yield from _family(
        "DCGM_FI_DEV_GPU_UTIL", "As in the DCGM exporter: a GPU that is held is busy.", _busy(measured.nodes)
    )


Sample = tuple[dict[str, str], int | Decimal]


def _family(name: str, text: str, samples: Iterable[Sample]) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} gauge"
    for labels, value in samples:
        inside = ",".join(f'{key}="{_escaped(label)}"' for key, label in labels.items())
        yield f"{name}{{{inside}}} {value}" if inside else f"{name} {value}"


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _allocatable(nodes: Iterable[HomeNode]) -> Iterator[Sample]:
    for node in nodes:
        yield {"node": node.name}, node.gpus


def _requested(nodes: Iterable[HomeNode]) -> Iterator[Sample]:
    for node in nodes:
        yield {"node": node.name, "class": "lowest"}, node.requested_lowest
        yield {"node": node.name, "class": "other"}, node.requested_other


def _node_resources(nodes: Iterable[HomeNode]) -> Iterator[Sample]:
    for node in nodes:
        for resource, amount in node.allocatable.items():
            yield {"node": node.name, **_resource(resource)}, amount


def _requests(measured: Measured) -> Iterator[Sample]:
    for held in measured.held:
        for resource, amount in held.requests.items():
            labels = {
                "namespace": held.namespace,
                "pod": held.pod,
                "uid": held.uid,
                "container": held.container,
                "node": held.node,
            }
            yield {**labels, **_resource(resource)}, amount


def _resource(name: str) -> dict[str, str]:
    unit = "core" if name == "cpu" else "byte" if name in BYTES else "integer"
    return {"resource": "".join(letter if letter.isalnum() else "_" for letter in name), "unit": unit}


def _busy(nodes: Iterable[HomeNode]) -> Iterator[Sample]:
    for node in nodes:
        for number in range(node.gpus):
            held = number < node.requested_lowest + node.requested_other
            yield {"gpu": str(number), "Hostname": node.name, "modelName": node.model}, 100 if held else 0
