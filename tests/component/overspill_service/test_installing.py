"""The Jobs of an installation as programs: what they make, what they keep, and how they end."""

import asyncio
import sys
from pathlib import Path

import pytest

from overspill_bus.permissions import users
from overspill_events.names import SYSTEM_NAMESPACE
from overspill_kube.client import Client, connect
from overspill_kube.errors import KubeError
from overspill_kube.resources import CONFIG_MAPS, SECRETS
from overspill_kube.settings import KubeSettings
from overspill_lab.lab import clean_environment
from overspill_service.installing import create_missing
from tests.support.kube_place import done
from tests.support.lab_apiserver import lab_apiserver


async def job(module: str, kubeconfig: Path, **more: str) -> tuple[int, str]:
    """Exit code and what it said."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", f"overspill_service.{module}",
        env={**clean_environment(), "OVERSPILL_KUBECONFIG": str(kubeconfig), **more}, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, said = await process.communicate()
    return process.returncode or 0, said.decode()


@pytest.fixture
async def kubeconfig(tmp_path):
    async with lab_apiserver(tmp_path) as path:
        yield path


@pytest.fixture
async def client(kubeconfig):
    async with connect(KubeSettings(kubeconfig=str(kubeconfig))) as made:
        yield made


async def test_what_is_missing_is_made_and_the_rest_kept(client: Client, kubeconfig: Path) -> None:
    names = sorted(f"overspill-nats-{user.name}" for user in users())
    code, said = await job("credentials", kubeconfig)
    assert (code, sorted(said.splitlines())) == (0, [f"{name}: made" for name in names])
    before = (await client.list(SECRETS, namespace=SYSTEM_NAMESPACE)).items
    assert sorted(secret.metadata.name for secret in before) == names
    code, said = await job("credentials", kubeconfig)
    assert (code, sorted(said.splitlines())) == (0, [f"{name}: kept" for name in names])
    assert (await client.list(SECRETS, namespace=SYSTEM_NAMESPACE)).items == before


async def test_what_is_being_deleted_will_be_missing(client: Client) -> None:
    """The Job fails and is tried again, and does not count what will be gone in a moment."""
    held = {"metadata": {"name": "held", "finalizers": ["overspill.dev/hold"]}}
    assert await create_missing(client, CONFIG_MAPS, [held], SYSTEM_NAMESPACE) == {"held": True}
    assert await create_missing(client, CONFIG_MAPS, [held], SYSTEM_NAMESPACE) == {"held": False}
    done(await client.delete(CONFIG_MAPS, "held", SYSTEM_NAMESPACE))
    with pytest.raises(KubeError, match="ConfigMap held: object is being deleted"):
        await create_missing(client, CONFIG_MAPS, [held], SYSTEM_NAMESPACE)


@pytest.mark.parametrize("module", ["credentials", "crds"])
async def test_a_refusal_ends_with_1_and_its_words(module: str, kubeconfig: Path) -> None:
    """No such namespace; and the lab takes no definitions of kinds, it serves Kueue's by itself."""
    code, said = await job(module, kubeconfig, OVERSPILL_NAMESPACE="nowhere")
    assert code == 1
    assert said.startswith(f"overspill {module}: ")
    assert "Traceback" not in said


@pytest.mark.parametrize("module", ["credentials", "crds"])
async def test_settings_that_cannot_be_used_end_with_2(module: str, tmp_path: Path) -> None:
    code, said = await job(module, tmp_path / "nothing")
    assert (code, "nothing" in said) == (2, True), said
    code, said = await job(module, tmp_path / "nothing", OVERSPILL_MODE="perhaps")
    assert (code, "act | observe" in said) == (2, True), said
