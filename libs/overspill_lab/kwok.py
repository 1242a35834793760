"""KWOK in the place of the lab's own kubelets, on a cluster that runs already.

KWOK plays the kubelets of nodes that somebody else has made, by rules called stages. The stages here do what
`kubelets.life` does, read the same annotation, and leave out what the demo has no use for: restarts and exit codes.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from overspill_kube.client import connect
from overspill_kube.outcomes import AlreadyExists, Done
from overspill_kube.resources import NODES
from overspill_kube.settings import KubeSettings
from overspill_lab.kubelets.life import RUN_SECONDS, Pace
from overspill_lab.kubelets.machines import (
    LEASE_SECONDS,
    MADE_BY,
    MADE_BY_LABEL,
    NodesFileError,
    node_object,
    read_machines,
)
from overspill_lab.programs import Answers, LabError, Program

_NOT_LEAVING: Final = {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"}
_LEAVING: Final = {"key": ".metadata.deletionTimestamp", "operator": "Exists"}
_RUN_FOR: Final = f'.metadata.annotations["{RUN_SECONDS}"]'
_HEALTHY: Final = """
{{ $now := Now }}
conditions:
{{ range NodeConditions }}
- {type: {{ .type | Quote }}, status: {{ .status | Quote }}, reason: {{ .reason | Quote }},
   message: {{ .message | Quote }}, lastHeartbeatTime: {{ $now | Quote }}, lastTransitionTime: {{ $now | Quote }}}
{{ end }}
"""
# An API server refuses in-place resize of containers whose status does not say what they have.
_RUNNING: Final = """
{{ $now := Now }}
phase: Running
startTime: {{ $now | Quote }}
conditions:
{{ range $type := list "PodReadyToStartContainers" "Initialized" "ContainersReady" "Ready" }}
- {type: {{ $type }}, status: "True", lastTransitionTime: {{ $now | Quote }}}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: ""
  ready: true
  started: true
  restartCount: 0
  state: {running: {startedAt: {{ $now | Quote }}}}
  resources: {{ toJson .resources }}
  allocatedResources: {{ toJson .resources.requests }}
{{ end }}
{{ $addresses := PodIPsWith .spec.nodeName false .metadata.uid .metadata.name .metadata.namespace }}
podIP: {{ index $addresses 0 | Quote }}
podIPs: [{ip: {{ index $addresses 0 | Quote }}}]
"""
_SUCCEEDED: Final = """
{{ $now := Now }}
{{ $start := .status.startTime }}
phase: Succeeded
conditions:
{{ range $type := list "ContainersReady" "Ready" }}
- {type: {{ $type }}, status: "False", reason: PodCompleted, lastTransitionTime: {{ $now | Quote }}}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: ""
  ready: false
  started: false
  restartCount: 0
  state:
    terminated:
      {exitCode: 0, reason: Completed, startedAt: {{ $start | Quote }}, finishedAt: {{ $now | Quote }}}
{{ end }}
"""


def stages(pace: Pace) -> list[dict[str, Any]]:
    """The rules by which nodes become Ready and pods run, end and go."""
    not_ready = {
        "key": '.status.conditions.[] | select( .type == "Ready" ) | .status',
        "operator": "NotIn",
        "values": ["True"],
    }
    return [
        _stage("node-is-ready", "Node", [not_ready], {"statusTemplate": _HEALTHY}),
        _stage(
            "pod-runs",
            "Pod",
            [_NOT_LEAVING, _phase("Pending")],
            {"statusTemplate": _RUNNING},
            delay={"durationMilliseconds": round(pace.start_s * 1000)},
        ),
        _stage(
            "pod-ends",
            "Pod",
            [_NOT_LEAVING, _phase("Running"), {"key": _RUN_FOR, "operator": "Exists"}],
            {"statusTemplate": _SUCCEEDED},
            delay={"durationMilliseconds": 0, "durationFrom": {"expressionFrom": f'{_RUN_FOR} + "s"'}},
        ),
        _stage(
            "pod-goes",
            "Pod",
            [_LEAVING],
            {"delete": True},
            delay={"durationMilliseconds": round(pace.stop_s * 1000)},
        ),
    ]


def program(
    binary: Path, *, kubeconfig: Path, folder: Path, port: int, environment: Mapping[str, str], pace: Pace | None = None
) -> Program:
    """KWOK as a program of the lab; writes its stages into `folder`."""
    file = folder / "kwok-stages.yaml"
    file.write_text("\n---\n".join(json.dumps(stage, indent=1) for stage in stages(pace or Pace())) + "\n")
    return Program(
        name="kwok",
        command=(
            str(binary),
            f"--kubeconfig={kubeconfig}",
            f"--config={file}",
            "--manage-all-nodes=false",
            f"--manage-nodes-with-label-selector={MADE_BY_LABEL}={MADE_BY}",
            f"--node-lease-duration-seconds={LEASE_SECONDS}",
            "--node-ip=127.0.0.1",
            f"--server-address=127.0.0.1:{port}",
        ),
        environment=environment,
        readiness=Answers(url=f"http://127.0.0.1:{port}/readyz"),
    )


async def register(kubeconfig: Path, nodes: Path) -> None:
    """Make the Node objects of a nodes file, as kubelets would register themselves.

    Raises LabError when the file cannot be used or a node is refused.
    """
    try:
        machines = read_machines(nodes)
    except NodesFileError as error:
        raise LabError(str(error)) from error
    settings = KubeSettings(kubeconfig=str(kubeconfig), user_agent="overspill-lab-kwok")
    async with connect(settings) as client:
        for machine in machines:
            outcome = await client.create(NODES, node_object(machine, now=client.clock.now()))
            if not isinstance(outcome, Done | AlreadyExists):
                raise LabError(f"node {machine.name} was refused: {outcome}")


def _stage(
    name: str,
    kind: str,
    when: list[dict[str, Any]],
    then: dict[str, Any],
    *,
    delay: dict[str, Any] | None = None,
) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "resourceRef": {"apiGroup": "v1", "kind": kind},
        "selector": {"matchExpressions": when},
        "next": then,
    }
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": spec | ({"delay": delay} if delay else {}),
    }


def _phase(phase: str) -> dict[str, Any]:
    return {"key": ".status.phase", "operator": "In", "values": [phase]}
