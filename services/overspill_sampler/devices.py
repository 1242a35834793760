"""Which nodes offer GPUs through DRA: they are not modelled, and a node that cannot be counted must be known as such.

A slice counts when its driver belongs to the resource's vendor: `gpu.nvidia.com` to `nvidia.com/gpu`. A network card's
slice says nothing about GPUs.
"""

from typing import Final

from msgspec import Struct

from overspill_kube.client import Client
from overspill_kube.resources import Resource
from overspill_objects.meta import ObjectMeta
from overspill_objects.view import View

VERSIONS: Final = ("v1", "v1beta2", "v1beta1")


class SliceSpec(View, frozen=True, kw_only=True):
    """`node_name` is empty for devices that several nodes can use."""

    driver: str = ""
    node_name: str = ""


class ResourceSlice(View, frozen=True, kw_only=True):
    """Devices that a driver offers (resource.k8s.io)."""

    metadata: ObjectMeta = ObjectMeta()
    spec: SliceSpec = SliceSpec()


SLICES: Final = Resource(
    group="resource.k8s.io",
    version="v1",
    plural="resourceslices",
    kind="ResourceSlice",
    namespaced=False,
    view=ResourceSlice,
)
RULES: Final = (SLICES.rule("list"),)


class Devices(Struct, frozen=True, kw_only=True):
    """Nodes with devices of the vendor; `shared`: a pool that belongs to no single node."""

    nodes: frozenset[str] = frozenset()
    shared: bool = False


async def find_devices(client: Client, *, resource: str) -> Devices:
    """Look once. Raises KubeUnavailable, and KubeError when slices may not be listed."""
    served = await client.served(SLICES, *VERSIONS)
    if served is None:
        return Devices()
    listing = await client.list(served)
    vendor = resource.partition("/")[0]
    ours = [one.spec for one in listing.items if one.spec.driver == vendor or one.spec.driver.endswith(f".{vendor}")]
    return Devices(
        nodes=frozenset(spec.node_name for spec in ours if spec.node_name),
        shared=any(not spec.node_name for spec in ours),
    )
