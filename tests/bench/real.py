"""The figures on the real control plane: which there are, in what order, on what.

Each on a fresh control plane, so that none pays for what another left behind. For taints and lists it is etcd and the
API server alone, so that nothing of the cluster answers 10,000 pods. For evictions and the bridge there are controllers
and scheduler too, on the same cores as what is measured, as other projects' figures were taken.
"""

import contextlib
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from overspill_kube.client import Client, connect
from overspill_kube.settings import KubeSettings
from tests.bench import api, real_bridge, real_evictions, real_floor, real_taints
from tests.bench.machine import with_machine
from tests.cluster.controlplane.build import is_built
from tests.cluster.controlplane.modules import CONTROL_PLANE
from tests.cluster.controlplane.start import ControlPlane, control_plane

PODS_LISTED: Final = 10_000
ASKED: Final = "OVERSPILL_BENCH_REAL"  # 1: build what is missing; 0: never; unset: when it is built already
NAMES: Final = ("taints", "list_and_watch", "evictions", "bridge")


def why_left_out() -> str | None:
    """Why these figures are not taken, with what to do about it; None when they are. Raises ValueError."""
    asked = os.environ.get(ASKED, "")
    if asked not in {"", "0", "1"}:
        raise ValueError(f"{ASKED}={asked!r}: accepted are 1 (build what is missing), 0 (never), or nothing")
    if asked == "0":
        return f"{ASKED}=0"
    if asked == "1" or is_built(CONTROL_PLANE):
        return None
    return f"its programs are not built; `make cluster-binaries` builds them once, and so does {ASKED}=1"


async def measure(folder: Path, *, share: float, only: set[str]) -> dict[str, Any]:
    """Those figures whose names are in `only`, with `share` of the load."""
    figures: dict[str, Any] = {"kubernetes": CONTROL_PLANE.version}

    async def take(name: str, work: Callable[[], Awaitable[dict[str, Any]]]) -> None:
        if name in only:
            print(f"measuring {name} on the real control plane …", file=sys.stderr, flush=True)
            try:
                figures[name] = await work()
            except TimeoutError as error:  # one figure that could not be had does not cost the others
                print(f"not measured: {name}: {error}", file=sys.stderr, flush=True)
                figures[name] = {"not_measured": str(error)}

    if only & {"taints", "list_and_watch"}:
        async with _plane(controllers=False) as (_, client):
            await _service_account(client)
            await take("taints", lambda: with_machine(real_taints.measure(client, share=share)))
            pods = round(PODS_LISTED * share)
            await take("list_and_watch", lambda: with_machine(api.list_and_watch(client, pods=pods)))
    for name, work in (("evictions", _evictions), ("bridge", real_bridge.measure)):
        if name in only:
            async with (
                _plane(controllers=True) as (plane, client),
                real_floor.kubelets(plane.kubeconfig, folder) as who,
            ):
                figures["kubelets"] = who
                await take(name, partial(work, plane.kubeconfig, client, folder, share=share))
    return figures


async def _evictions(_kubeconfig: Path, client: Client, _folder: Path, *, share: float) -> dict[str, Any]:
    return await real_evictions.measure(client, share=share)


@contextlib.asynccontextmanager
async def _plane(*, controllers: bool) -> AsyncIterator[tuple[ControlPlane, Client]]:
    async with (
        control_plane(controllers=controllers, scheduler=controllers) as plane,
        connect(KubeSettings(kubeconfig=str(plane.kubeconfig), user_agent="bench")) as client,
    ):
        yield plane, client


async def _service_account(client: Client) -> None:
    """Without its controllers the API server has no account for pods, and refuses them."""
    body = {"metadata": {"name": "default"}}
    status, answer = await client.raw("POST", "/api/v1/namespaces/default/serviceaccounts", body=body)
    if status >= 300:
        raise RuntimeError(f"service account default: {status} {answer.decode()}")
