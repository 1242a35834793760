"""Cuts the demo's scenario out of the openb trace.

`python -m overspill_demo.scenarios.cut_openb NODES.csv PODS.csv > openb.json`, where the trace's files are
`openb_node_list_gpu_node.csv` and `openb_pod_list_default.csv` (see ATTRIBUTION.md). The rules below are the whole
cut: nothing is drawn at random, so that anybody can repeat it. The demo reads the result, never this module.
"""

import csv
import sys
from pathlib import Path

import msgspec

from overspill_demo.scenario import Freeze, HomeNode, Inference, Research, Scaling, Scenario, Shape, check

NODE_STEP = 19  # every 19th GPU node in list order: 64 nodes
RESEARCH_PODS = 400  # the first 400 whole-GPU pods of classes BE and Burstable
SINGLE_STEP, MULTI_STEP = 14, 6  # every 14th one-GPU and every 6th multi-GPU pod of class LS
LARGEST_INFERENCE = 4  # GPUs; an 8-GPU replica needs a whole node emptied for it, which takes preemption
TIME_FACTOR, SHORTEST, LONGEST = 8.0, 20.0, 40.0  # real run seconds / 8, within these bounds
BASE_REPLICAS = 20  # replicas there before the wave
FROZEN, FREEZE_LIFTED_AFTER = (
    2,
    6.0,
)  # the third largest Deployment is under a change freeze until 6 s after the gate closes
RESEARCH_AT, QUEUE_OPENS_AT, SCALE_UP_FROM, SCALE_UP_FOR = 3.0, 7.0, 13.0, 12.0
CUT = " ".join(
    f"""
    nodes: every {NODE_STEP}th of the GPU node list.
    research: the first {RESEARCH_PODS} pods of classes BE and Burstable with whole GPUs, in order of creation, run time
    divided by {TIME_FACTOR:g} and kept within {SHORTEST:g} to {LONGEST:g} s.
    inference: of class LS with whole GPUs, in order of creation, every {SINGLE_STEP}th one-GPU and every {MULTI_STEP}th
    multi-GPU pod of at most {LARGEST_INFERENCE} GPUs; pods of equal shape are the replicas of one Deployment, shapes
    with one pod only are left out; the first {BASE_REPLICAS} are there from the start, the others arrive in their order
    within {SCALE_UP_FOR:g} s.
    """.split()
)
Pod = dict[str, str]


def nodes(rows: list[dict[str, str]]) -> tuple[HomeNode, ...]:
    """Every 19th node of the list, as it is."""
    return tuple(
        HomeNode(
            name=row["sn"],
            cpu_milli=int(row["cpu_milli"]),
            memory_mib=int(row["memory_mib"]),
            gpus=int(row["gpu"]),
            model=row["model"],
        )
        for row in rows[::NODE_STEP]
    )


def shape(pod: Pod) -> Shape:
    """What the pod asked for in the trace."""
    return Shape(cpu_milli=int(pod["cpu_milli"]), memory_mib=int(pod["memory_mib"]), gpus=int(pod["num_gpu"]))


def run_seconds(pod: Pod) -> float:
    """Compressed run time; a pod without an end in the trace runs longest."""
    if not (pod["scheduled_time"] and pod["deletion_time"]):
        return LONGEST
    real = float(pod["deletion_time"]) - float(pod["scheduled_time"])
    return round(min(LONGEST, max(SHORTEST, real / TIME_FACTOR)), 1)


def research(pods: list[Pod]) -> tuple[Research, ...]:
    """The first BE and Burstable pods, each a Job."""
    chosen = [pod for pod in pods if pod["qos"] in {"BE", "Burstable"}][:RESEARCH_PODS]
    return tuple(
        Research(
            name=f"research-{pod['name'].removeprefix('openb-pod-')}", shape=shape(pod), run_seconds=run_seconds(pod)
        )
        for pod in chosen
    )


def inference(pods: list[Pod]) -> tuple[Inference, ...]:
    """LS pods grouped into Deployments by shape, arriving in the trace's order."""
    single = [pod for pod in pods if pod["qos"] == "LS" and pod["num_gpu"] == "1"][::SINGLE_STEP]
    multi = [pod for pod in pods if pod["qos"] == "LS" and int(pod["num_gpu"]) > 1][::MULTI_STEP]
    chosen = sorted((pod for pod in single + multi if int(pod["num_gpu"]) <= LARGEST_INFERENCE), key=_created)
    shapes = [shape(pod) for pod in chosen]
    arrivals = [item for item in shapes if shapes.count(item) > 1]
    step = SCALE_UP_FOR / max(1, len(arrivals) - BASE_REPLICAS)
    scalings: dict[Shape, list[Scaling]] = {}
    for index, item in enumerate(arrivals):
        at = 0.0 if index < BASE_REPLICAS else round(SCALE_UP_FROM + step * (index - BASE_REPLICAS), 2)
        before = scalings.setdefault(item, [])
        replicas = before[-1].replicas + 1 if before else 1
        if before and before[-1].at == at:
            before.pop()
        before.append(Scaling(at=at, replicas=replicas))
    return tuple(
        Inference(
            name=f"inference-{item.gpus}g-{item.cpu_milli}m-{item.memory_mib}mi",
            shape=item,
            scalings=tuple(steps),
            max_unavailable=max(1, steps[-1].replicas // 4),
        )
        for item, steps in scalings.items()
    )


def _created(pod: Pod) -> tuple[float, str]:
    return float(pod["creation_time"]), pod["name"]


def _rows(path: str) -> list[dict[str, str]]:
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


def cut(node_rows: list[dict[str, str]], pod_rows: list[Pod]) -> Scenario:
    """The scenario, by the rules at the top of this module."""
    whole = sorted((pod for pod in pod_rows if int(pod["num_gpu"]) > 0 and pod["gpu_milli"] == "1000"), key=_created)
    deployments = inference(whole)
    by_size = sorted(deployments, key=lambda deployment: (-deployment.replicas, deployment.name))
    scenario = Scenario(
        name="openb",
        source="openb_node_list_gpu_node.csv and openb_pod_list_default.csv, Alibaba cluster trace gpu-v2023 (openb)",
        licence="Apache-2.0",
        cut=CUT,
        nodes=nodes(node_rows),
        research=research(whole),
        inference=deployments,
        research_at=RESEARCH_AT,
        queue_opens_at=QUEUE_OPENS_AT,
        freeze=Freeze(deployment=by_size[FROZEN].name, lifted_after_closing_seconds=FREEZE_LIFTED_AFTER),
    )
    check(scenario, where="cut")
    return scenario


def lines(scenario: Scenario) -> str:
    """The scenario as JSON, one node, job or Deployment a line, so that a change of the cut is a readable diff."""
    fields = []
    for name, value in msgspec.to_builtins(scenario).items():
        if isinstance(value, list | tuple):
            items = ",\n  ".join(msgspec.json.encode(item).decode() for item in value)
            fields.append(f'"{name}": [\n  {items}\n]')
        else:
            fields.append(f'"{name}": {msgspec.json.encode(value).decode()}')
    return "{" + ",\n".join(fields) + "}\n"


def main() -> None:
    """Print the scenario."""
    node_file, pod_file = sys.argv[1:]
    sys.stdout.write(lines(cut(_rows(node_file), _rows(pod_file))))


if __name__ == "__main__":
    main()
