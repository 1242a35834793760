"""An API server that serves no MutatingAdmissionPolicies: deploy/ has an overlay for it, and `doctor` says what is missing.

The server is of today and emulates 1.35: what came later does not exist there.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from overspill_bus.testing import nats_server
from overspill_cli.policies import DOES, GUIDE
from tests.cluster.controlplane.start import ControlPlane, control_plane
from tests.support.commands import overspill
from tests.support.deployed import apply, kubectl, render
from tests.support.manifests import DEPLOY, name_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


@pytest.fixture
async def older() -> AsyncIterator[ControlPlane]:
    async with control_plane(controllers=False, emulated_version="1.35") as plane:
        yield plane


async def test_its_overlay_installs_all_the_rest_and_doctor_says_what_nobody_does(
    older: ControlPlane, tmp_path: Path
) -> None:
    server = json.loads(await kubectl("version", "-o", "json", kubeconfig=older.kubeconfig))["serverVersion"]
    assert server["emulationMinor"] == "35"
    text = await render(DEPLOY / "overlays" / "before-1.36")
    file = tmp_path / "older.yaml"
    await asyncio.to_thread(file.write_text, text)
    wanted = {name_of(one) for one in yaml.load_all(text, yaml.CSafeLoader) if one}
    assert len(await apply(older, file)) == len(wanted)
    assert await kubectl("diff", "-f", str(file), kubeconfig=older.kubeconfig) == ""

    async with nats_server() as nats:
        env = {"OVERSPILL_KUBECONFIG": str(older.kubeconfig), "OVERSPILL_NATS_URL": nats.url}
        code, out, err = await overspill("doctor", "-o", "json", env=env)
    assert (code, err) == (1, "")  # the installation has not begun to work
    found = {one["what"]: one for one in json.loads(out)["findings"]}
    policies, kinds = found["admission policies"], found["queue kinds"]
    assert policies["health"] == "warning"
    assert "has no MutatingAdmissionPolicies" in policies["detail"]
    assert all(missing in policies["detail"] for missing in DOES.values())
    assert GUIDE in policies["advice"]
    assert (kinds["health"], "is not served" in kinds["detail"]) == ("warning", True)
    assert "overspill-crds" in kinds["advice"]


async def test_production_is_refused_there_by_name_and_the_rest_is_kept(older: ControlPlane, tmp_path: Path) -> None:
    """Whoever takes the wrong overlay is told the kind, and applying the right one afterwards finds everything there."""
    file = tmp_path / "production.yaml"
    await asyncio.to_thread(file.write_text, await render(DEPLOY))
    with pytest.raises(AssertionError, match='no matches for kind "MutatingAdmissionPolicy"'):
        await apply(older, file)
    right = tmp_path / "older.yaml"
    await asyncio.to_thread(right.write_text, await render(DEPLOY / "overlays" / "before-1.36"))
    assert await kubectl("diff", "-f", str(right), kubeconfig=older.kubeconfig) == ""
