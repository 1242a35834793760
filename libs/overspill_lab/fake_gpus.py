"""GPUs that are not there: `python -m overspill_lab.fake_gpus` gives each node the number that its label says.

For kind, whose nodes have none: a kubelet takes an extended resource that stands in its node's status for granted and
starts pods that ask for it. A kubelet that starts again forgets it; running this again brings it back. It must not
touch a node without the label.
"""

import asyncio
import sys
from typing import Final

from overspill_events.names import GPU_RESOURCE
from overspill_kube.client import Client, PatchKind, connect
from overspill_kube.errors import ConfigError, KubeError, KubeUnavailable
from overspill_kube.outcomes import Done
from overspill_kube.resources import NODES
from overspill_kube.rules import Rule
from overspill_kube.settings import KubeSettings
from overspill_objects.core import Node

LABEL: Final = "fake-gpus"
RULES: Final[tuple[Rule, ...]] = (NODES.rule("list"), NODES.rule("patch", subresource="status"))


class EquipError(Exception):
    """The nodes do not have their GPUs; the message names the node or the label."""


async def equip(client: Client) -> dict[str, int]:
    """Write the GPUs of every labelled node into its status; returns them by node name.

    Raises EquipError for no such node, a label that is no number, or a refusal; KubeUnavailable, KubeError for a list
    that fails.
    """
    nodes = (await client.list(NODES, labels=LABEL)).items
    if not nodes:
        raise EquipError(f"no node carries the label {LABEL}")
    gpus = {node.metadata.name: _gpus_of(node) for node in nodes}
    for name, number in gpus.items():
        amount = {GPU_RESOURCE: str(number)}
        # Allocatable follows capacity with the kubelet's next status; said here too, so that pods need not wait for it.
        body = {"status": {"capacity": amount, "allocatable": amount}}
        outcome = await client.patch(NODES, name, body, kind=PatchKind.STRATEGIC, subresource="status")
        if not isinstance(outcome, Done):
            raise EquipError(f"node {name}: {outcome}")
    return gpus


def _gpus_of(node: Node) -> int:
    text = node.metadata.labels[LABEL]
    if not text.isdecimal():
        raise EquipError(f"node {node.metadata.name}: label {LABEL}={text!r}: a whole number is needed")
    return int(text)


async def _run() -> None:
    async with connect(KubeSettings(user_agent="overspill-lab-fake-gpus")) as client:
        for name, number in (await equip(client)).items():
            sys.stdout.write(f"{name}: {number} {GPU_RESOURCE}\n")


def main() -> int:
    """Exit code 1 when a node has not got its GPUs, with the reason on stderr."""
    try:
        asyncio.run(_run())
    except (EquipError, ConfigError, KubeError, KubeUnavailable) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
