"""Scenario files: what is accepted, what is refused and how, and that the shipped one is exactly its cut."""

import csv
import gzip
import io
import json
from pathlib import Path

import pytest

from overspill_demo.scenario import ScenarioError, built_in, load, stretched
from overspill_demo.scenarios.cut_openb import cut, lines

DATA = Path(__file__).parents[2] / "data" / "openb"


def rows(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(gzip.decompress((DATA / f"{name}.csv.gz").read_bytes()).decode())))


def smallest() -> dict:
    shape = {"cpu_milli": 1000, "memory_mib": 1024, "gpus": 1}
    return {
        "name": "smallest",
        "source": "made up",
        "licence": "none",
        "cut": "none",
        "nodes": [{"name": "a", "cpu_milli": 8000, "memory_mib": 65536, "gpus": 8, "model": "G"}],
        "research": [{"name": "r", "shape": shape, "run_seconds": 3}],
        "inference": [{"name": "i", "shape": shape, "scalings": [{"at": 0, "replicas": 2}]}],
        "research_at": 1,
        "queue_opens_at": 2,
    }


def written(tmp_path: Path, document: object) -> Path:
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(document))
    return path


def test_the_shipped_scenario_is_its_cut_of_the_trace():
    """Nobody edits openb.json by hand: the rules in cut_openb make it, byte for byte."""
    made = lines(cut(rows("openb_node_list_gpu_node"), rows("openb_pod_list_default")))
    assert made == built_in().read_text()


def test_the_shipped_scenario_is_large_enough_and_keeps_the_traces_order():
    """At least 60 nodes and 600 pods, multi-GPU pods among them, research in order of creation."""
    scenario = load(built_in())
    assert len(scenario.nodes) >= 60
    assert scenario.pods_total >= 600
    assert any(research.shape.gpus > 1 for research in scenario.research)
    assert any(inference.shape.gpus > 1 for inference in scenario.inference)
    created = {row["name"]: float(row["creation_time"]) for row in rows("openb_pod_list_default")}
    times = [created[research.name.replace("research-", "openb-pod-")] for research in scenario.research]
    assert times == sorted(times)


def test_a_smallest_scenario_is_accepted(tmp_path: Path):
    """Everything optional may be left out."""
    assert load(written(tmp_path, smallest())).pods_total == 3


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"nodes": []}, "$.nodes"),
        ({"research_at": -1}, "$.research_at"),
        ({"colour": "red"}, "colour"),
        ({"inference": [{"name": "i", "scalings": [{"at": 0, "replicas": 2}]}]}, "shape"),
        ({"freeze": {"deployment": "nobody", "lifted_after_closing_seconds": 1}}, "nobody"),
        (
            {"research": [{"name": "r", "shape": {"cpu_milli": 1, "memory_mib": 1, "gpus": 9}, "run_seconds": 3}]},
            "no home node is large enough",
        ),
        (
            {
                "inference": [
                    {
                        "name": "i",
                        "shape": {"cpu_milli": 1, "memory_mib": 1, "gpus": 1},
                        "scalings": [{"at": 5, "replicas": 2}, {"at": 1, "replicas": 3}],
                    }
                ]
            },
            "`at` must grow",
        ),
        (
            {
                "inference": [
                    {
                        "name": "i",
                        "shape": {"cpu_milli": 1, "memory_mib": 1, "gpus": 1},
                        "scalings": [{"at": 1, "replicas": 3}, {"at": 5, "replicas": 2}],
                    }
                ]
            },
            "`replicas` must grow",
        ),
        (
            {"research": [{"name": "i", "shape": {"cpu_milli": 1, "memory_mib": 1, "gpus": 1}, "run_seconds": 3}]},
            "unique",
        ),
    ],
)
def test_a_bad_file_is_refused_with_the_field_and_the_file(tmp_path: Path, change: dict, named: str):
    """The message says where the fault is."""
    path = written(tmp_path, smallest() | change)
    with pytest.raises(ScenarioError) as refused:
        load(path)
    assert named in str(refused.value)
    assert str(path) in str(refused.value)


def test_no_file_and_no_json_are_refused(tmp_path: Path):
    """Neither ends in a traceback about something else."""
    with pytest.raises(ScenarioError, match="cannot be read"):
        load(tmp_path / "absent.json")
    path = tmp_path / "scenario.json"
    path.write_text("{")
    with pytest.raises(ScenarioError, match=r"scenario\.json"):
        load(path)


def test_a_stretched_story_runs_its_research_longer_and_changes_nothing_else():
    scenario = load(built_in())
    longer = stretched(scenario, 3)
    assert [item.run_seconds for item in longer.research] == [3 * item.run_seconds for item in scenario.research]
    assert stretched(longer, 1 / 3).inference == scenario.inference
    assert [item.shape for item in longer.research] == [item.shape for item in scenario.research]
