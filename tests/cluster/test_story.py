"""The demo's story on a real control plane: the same promises, the same JSON, and a cluster that is as it was before."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from overspill_demo.ground.clearing import leftovers
from overspill_events import names
from overspill_kube.client import connect
from overspill_kube.contexts import context_of
from overspill_kube.resources import NODES
from overspill_kube.settings import KubeSettings
from tests.cluster.controlplane.build import kwok
from tests.support.cluster_choice import real_cluster
from tests.support.stories import patient_scenario, performed

pytestmark = [pytest.mark.cluster, pytest.mark.story, pytest.mark.timeout(600)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kubeconfig() -> AsyncIterator[Path]:
    """One control plane for all performances: each must leave it as it was."""
    async with real_cluster() as path:
        yield path


@pytest.mark.parametrize("nodes", ["the lab's kubelets", "KWOK"])
async def test_the_story_on_a_real_control_plane(tmp_path: Path, kubeconfig: Path, nodes: str):
    """Overflow and return: exit 0, one opening, one closing, nothing orphaned, nothing twice, nothing left behind."""
    player = [f"--kwok={await asyncio.to_thread(kwok)}"] if nodes == "KWOK" else []
    context = context_of(KubeSettings(kubeconfig=str(kubeconfig)))  # the tests were told that they may change it
    options = (f"--kubeconfig={kubeconfig}", f"--allow-context={context}", *player)
    async with performed(tmp_path, *options, scenario=patient_scenario()) as demo:
        code, words, summary = await demo.ended()
    assert code == 0, f"{words}\n{demo.told}"
    assert all(invariant["ok"] for invariant in summary["invariants"])
    assert summary["pods_spilled"] >= 1
    assert summary["pods_returned"] == summary["pods_spilled"]
    assert (summary["gate_openings"], summary["gate_closings"]) == (1, 1)
    assert (summary["orphan_instances"], summary["duplicate_instances"], summary["stream_gaps"]) == (0, 0, 0)
    assert summary["kubeconfig"] == str(kubeconfig)
    assert "the cluster is as it was" in demo.told
    async with connect(KubeSettings(kubeconfig=str(kubeconfig))) as kube:
        assert await leftovers(kube) == []
        assert (await kube.list(NODES, labels=names.VIRTUAL_LABEL)).items == ()
