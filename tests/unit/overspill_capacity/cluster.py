"""Nodes and pods in few words, decoded from JSON as the API server would send them."""

import msgspec

from overspill_objects.core import Node, Pod

GPU = "nvidia.com/gpu"
READY = ({"type": "Ready", "status": "True"},)


def node(
    name="n1",
    gpus=8,
    *,
    cpu="64",
    memory="512Gi",
    pods="110",
    labels=None,
    taints=(),
    ready="True",
    cordoned=False,
    resource=GPU,
    **allocatable,
) -> Node:
    amounts = {"cpu": cpu, "memory": memory, "pods": pods, **allocatable}
    if gpus is not None:
        amounts[resource] = str(gpus)
    return msgspec.convert(
        {
            "metadata": {"name": name, "labels": labels or {}},
            "spec": {"taints": list(taints), "unschedulable": cordoned},
            "status": {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": ready}]},
        },
        Node,
    )


def container(gpus=0, *, cpu="1", name="c", resource=GPU, **more) -> dict:
    limits = {resource: str(gpus)} if gpus else {}
    return {"name": name, "resources": {"requests": {"cpu": cpu}, "limits": limits}, **more}


def pod(name="p", gpus=1, *, on="", phase=None, spec=None, meta=None, status=None, cpu="1", resource=GPU) -> Pod:
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "ml", "uid": f"uid-{name}", **(meta or {})},
            "spec": {"containers": [container(gpus, cpu=cpu, resource=resource)], "nodeName": on, **(spec or {})},
            "status": {"phase": phase or ("Running" if on else "Pending"), **(status or {})},
        },
        Pod,
    )
