"""A scenario: home nodes, queues, research jobs and inference replicas over time.

This module reads and checks scenario files; it must not know how they are played. Amounts are Kubernetes' own
(millicores, MiB, whole GPUs), times are seconds from the start of the story.
"""

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

Name = Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
Positive = Annotated[int, Meta(ge=1)]
Amount = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(ge=0)]


class ScenarioError(Exception):
    """A scenario file that cannot be played; the message names the file, the field and what is accepted."""


class Shape(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one pod asks for."""

    cpu_milli: Positive
    memory_mib: Amount
    gpus: Positive


class HomeNode(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One node at home."""

    name: Name
    cpu_milli: Positive
    memory_mib: Positive
    gpus: Amount
    model: str


class Research(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One research Job of one pod."""

    name: Name
    shape: Shape
    run_seconds: Annotated[float, Meta(gt=0)]


class Scaling(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """At `at` the Deployment is scaled to `replicas`; after the start not before research has filled home."""

    at: Seconds
    replicas: Positive


class Inference(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One inference Deployment; `max_unavailable` is its PodDisruptionBudget."""

    name: Name
    shape: Shape
    scalings: Annotated[tuple[Scaling, ...], Meta(min_length=1)]
    max_unavailable: Amount = 1

    @property
    def replicas(self) -> int:
        """Replicas at the end."""
        return self.scalings[-1].replicas


class Freeze(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A change freeze: this Deployment's budget allows no disruption until so long after the gate has closed."""

    deployment: Name
    lifted_after_closing_seconds: Seconds


class Scenario(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole story. Research is submitted from `research_at` on, its queue opens at `queue_opens_at`."""

    name: Name
    source: str
    licence: str
    cut: str
    nodes: Annotated[tuple[HomeNode, ...], Meta(min_length=1)]
    research: tuple[Research, ...]
    inference: Annotated[tuple[Inference, ...], Meta(min_length=1)]
    research_at: Seconds
    queue_opens_at: Seconds
    freeze: Freeze | None = None

    @property
    def pods_total(self) -> int:
        """Research pods and inference replicas."""
        return len(self.research) + self.replicas

    @property
    def replicas(self) -> int:
        """Inference replicas at the end."""
        return sum(deployment.replicas for deployment in self.inference)

    @property
    def home_gpus(self) -> int:
        """GPUs at home."""
        return sum(node.gpus for node in self.nodes)


def stretched(scenario: Scenario, factor: float) -> Scenario:
    """The same story with research that runs `factor` times as long; when it is submitted and scaled stays."""
    research = tuple(replace(item, run_seconds=item.run_seconds * factor) for item in scenario.research)
    return replace(scenario, research=research)


def built_in(name: str = "openb") -> Path:
    """The file of a scenario that ships with Overspill."""
    return Path(__file__).parent / "scenarios" / f"{name}.json"


def load(path: Path) -> Scenario:
    """Read and check a scenario file.

    Raises ScenarioError that names the field (as a JSON path) and what is accepted.
    """
    try:
        scenario = msgspec.json.decode(path.read_bytes(), type=Scenario)
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:  # malformed JSON, and ValidationError with the path of the field
        raise ScenarioError(f"{path}: {error}") from error
    check(scenario, where=str(path))
    return scenario


def check(scenario: Scenario, *, where: str) -> None:
    """Rules that span fields: unique names, growing times, pods that some empty home node could hold.

    Raises ScenarioError.
    """
    for kind, names in (
        ("nodes", [node.name for node in scenario.nodes]),
        ("research and inference", [item.name for item in _work(scenario)]),
    ):
        if doubles := sorted({name for name in names if names.count(name) > 1}):
            raise ScenarioError(f"{where}: {kind}: names must be unique, twice there: {', '.join(doubles)}")
    for index, deployment in enumerate(scenario.inference):
        times = [scaling.at for scaling in deployment.scalings]
        if times != sorted(times):
            raise ScenarioError(f"{where}: $.inference[{index}].scalings: `at` must grow, is {times}")
        replicas = [scaling.replicas for scaling in deployment.scalings]
        if replicas != sorted(set(replicas)):  # who is scaled away does not come home, and could not be judged
            raise ScenarioError(f"{where}: $.inference[{index}].scalings: `replicas` must grow, is {replicas}")
    for item in _work(scenario):
        if not any(_holds(node, item.shape) for node in scenario.nodes):
            raise ScenarioError(f"{where}: shape of {item.name}: no home node is large enough for {item.shape}")
    if scenario.freeze and scenario.freeze.deployment not in {deployment.name for deployment in scenario.inference}:
        raise ScenarioError(
            f"{where}: $.freeze.deployment: {scenario.freeze.deployment!r} is none of the inference deployments"
        )


def _work(scenario: Scenario) -> tuple[Research | Inference, ...]:
    return (*scenario.research, *scenario.inference)


def _holds(node: HomeNode, shape: Shape) -> bool:
    return node.cpu_milli >= shape.cpu_milli and node.memory_mib >= shape.memory_mib and node.gpus >= shape.gpus
