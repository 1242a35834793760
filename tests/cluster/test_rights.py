"""Each service does all of its work with its own account, and needs every right that deploy/ gives it.

The story runs on a real API server whose audit log is the judge: a request that was refused, or allowed by anything but
the service's own role, fails and so does a rule that nobody used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from overspill_kube.client import connect
from overspill_kube.settings import KubeSettings
from overspill_lab.lab import CLUSTER
from tests.cluster.controlplane.start import control_plane
from tests.support.audit import AuditLog
from tests.support.installed import install, installed_nats
from tests.support.rights import Request, missing, refusals, unused
from tests.support.rights_story import perform

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420)]

LOOK_EVERY_S = 1.0


async def test_services_need_exactly_their_rights(tmp_path: Path) -> None:
    trouble: BaseException | None = None
    async with control_plane(scheduler=True, audit=True) as plane:
        assert plane.audit_log is not None
        settings = KubeSettings(kubeconfig=str(plane.kubeconfig), user_agent="overspill-test")
        async with connect(settings) as admin, installed_nats(cluster=CLUSTER) as nats:
            installation = await install(plane, admin, tmp_path)
            performance = perform(plane.kubeconfig, admin, installation, nats, tmp_path / "lab")
            trouble = await _unless_refused(performance, plane.audit_log)
        requests = await AuditLog(plane.audit_log).news()
    refused = missing(requests, installation.rights)
    assert not refused, _told("rights are missing in deploy/", refused)
    if trouble is not None:
        raise trouble
    too_many = unused(requests, installation.rights)
    assert not too_many, _told("deploy/ grants what nobody needs", too_many)


async def _unless_refused(performance: Coroutine[Any, Any, None], log: Path) -> BaseException | None:
    """Play it to the end, or until a service is refused something: then the rest would only be a consequence."""
    playing, watching = asyncio.create_task(performance), asyncio.create_task(_first_refusal(log))
    await asyncio.wait({playing, watching}, return_when=asyncio.FIRST_COMPLETED)
    playing.cancel()
    watching.cancel()
    ended, _ = await asyncio.gather(playing, watching, return_exceptions=True)
    return ended


async def _first_refusal(log: Path) -> list[Request]:
    audit = AuditLog(log)
    while not (refused := refusals(await audit.news())):  # noqa: ASYNC110  another process writes it
        await asyncio.sleep(LOOK_EVERY_S)
    return refused


def _told(what: str, findings: list[Any]) -> str:
    return "\n".join([f"{what}:", *map(str, findings)])
