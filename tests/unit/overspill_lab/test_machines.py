"""Nodes files and the nodes they describe."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from overspill_lab.kubelets.machines import Machine, NodesFileError, lease_object, node_object, read_machines
from overspill_objects.coordination import Lease
from overspill_objects.core import Node
from overspill_objects.meta import condition_of
from tests.support.lab_cases import GPU, NOW

GOOD = {"name": "n1", "cpu": "96", "memory": "384Gi", "gpus": 8, "model": "A100"}


def written(folder: Path, document: Any) -> Path:
    file = folder / "nodes.json"
    file.write_text(document if isinstance(document, str) else json.dumps(document))
    return file


def test_a_nodes_file_is_read(tmp_path: Path) -> None:
    assert read_machines(written(tmp_path, [GOOD])) == (
        Machine(name="n1", cpu="96", memory="384Gi", gpus=8, model="A100"),
    )


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ([{**GOOD, "gpus": "many"}], r"Expected `int`, got `str` - at `\$\[0\].gpus`"),
        ([{**GOOD, "gpu": 1}], "gpu"),
        ([{"name": "n1", "cpu": 1}], "memory"),
        ([{**GOOD, "cpu": "lots"}], "quantity 'lots'"),
        ([GOOD, GOOD], "named twice: n1"),
        ({"nodes": []}, "Expected `array`"),
        ("[{", "nodes.json"),
    ],
)
def test_a_bad_nodes_file_names_the_field(tmp_path: Path, document: Any, says: str) -> None:
    with pytest.raises(NodesFileError, match=says):
        read_machines(written(tmp_path, document))


def test_a_missing_nodes_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(NodesFileError, match=r"none\.json"):
        read_machines(tmp_path / "none.json")


def test_the_node_offers_what_the_machine_has() -> None:
    node = msgspec.convert(
        node_object(Machine(name="n1", cpu="96", memory="384Gi", gpus=8, model="A100"), now=NOW), type=Node
    )
    assert node.status.allocatable == node.status.capacity
    assert node.status.allocatable == {"cpu": "96", "memory": "384Gi", "pods": "110", GPU: "8"}
    assert node.metadata.labels["nvidia.com/gpu.product"] == "A100"
    ready = condition_of(node.status.conditions, "Ready")
    assert ready is not None
    assert ready.status == "True"


def test_a_machine_without_gpus_offers_none() -> None:
    node = msgspec.convert(node_object(Machine(name="n1", cpu=4, memory="8Gi"), now=NOW), type=Node)
    assert GPU not in node.status.allocatable
    assert "nvidia.com/gpu.product" not in node.metadata.labels


def test_the_lease_goes_with_its_node() -> None:
    document = lease_object(Machine(name="n1", cpu=4, memory="8Gi"), owner_uid="u", now=NOW)
    lease = msgspec.convert(document, type=Lease)
    assert [owner.uid for owner in lease.metadata.owner_references] == ["u"]
    # The API server accepts exactly six decimals.
    assert document["spec"]["renewTime"] == "2026-11-30T12:00:00.000000Z"
