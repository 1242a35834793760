"""Leases: what leader election stands on."""

from __future__ import annotations

import asyncio

import pytest

from tests.contract.kubernetes.client import Api
from tests.contract.kubernetes.objects import LEASES, lease

MICROTIME = "2026-11-30T06:00:00.123456Z"


async def test_a_lease_keeps_microseconds(api: Api, namespace: str) -> None:
    body = lease("leader", "a", acquireTime=MICROTIME, renewTime=MICROTIME, leaseTransitions=0)
    (await api.post(LEASES.format(namespace), body)).ok()
    seen = (await api.get(f"{LEASES.format(namespace)}/leader")).ok()["spec"]

    assert seen["renewTime"] == seen["acquireTime"] == MICROTIME
    assert (seen["holderIdentity"], seen["leaseDurationSeconds"], seen["leaseTransitions"]) == ("a", 15, 0)


async def test_a_lease_tells_its_times_in_utc(api: Api, namespace: str) -> None:
    body = lease("leader", "a", renewTime="2026-11-30T08:00:00.000001+02:00")
    (await api.post(LEASES.format(namespace), body)).ok()
    seen = (await api.get(f"{LEASES.format(namespace)}/leader")).ok()
    assert seen["spec"]["renewTime"] == "2026-11-30T06:00:00.000001Z"


@pytest.mark.parametrize("sent", ["2026-11-30T06:00:00Z", "2026-11-30T06:00:00.5Z", "yesterday"])
async def test_a_time_of_a_lease_has_six_decimals_or_is_refused(api: Api, namespace: str, sent: str) -> None:
    (await api.post(LEASES.format(namespace), lease("leader", "a", renewTime=sent))).refused(400, "BadRequest")


async def test_a_lease_is_created_by_one(api: Api, namespace: str) -> None:
    replies = await asyncio.gather(*(api.post(LEASES.format(namespace), lease("leader", str(n))) for n in range(4)))
    assert sorted(reply.status for reply in replies) == [201, 409, 409, 409]


async def test_a_lease_is_renewed_by_whoever_read_it_last(api: Api, namespace: str) -> None:
    path = f"{LEASES.format(namespace)}/leader"
    made = (await api.post(LEASES.format(namespace), lease("leader", "a"))).ok()
    taken = {**made, "spec": {**made["spec"], "holderIdentity": "b", "leaseTransitions": 1}}
    (await api.put(path, taken)).ok()

    renewed = {**made, "spec": {**made["spec"], "renewTime": MICROTIME}}
    (await api.put(path, renewed)).refused(409, "Conflict")
    assert (await api.get(path)).ok()["spec"]["holderIdentity"] == "b"


async def test_a_lease_cannot_be_replaced_without_its_version(api: Api, namespace: str) -> None:
    path = f"{LEASES.format(namespace)}/leader"
    (await api.post(LEASES.format(namespace), lease("leader", "a"))).ok()
    status = (await api.put(path, lease("leader", "b"))).refused(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "metadata.resourceVersion"


async def test_a_lease_is_released_by_an_empty_holder(api: Api, namespace: str) -> None:
    path = f"{LEASES.format(namespace)}/leader"
    made = (await api.post(LEASES.format(namespace), lease("leader", "a"))).ok()
    released = {**made, "spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}
    assert (await api.put(path, released)).ok()["spec"].get("holderIdentity") == ""


async def test_a_lease_needs_a_positive_duration(api: Api, namespace: str) -> None:
    body = lease("leader", "a", leaseDurationSeconds=0)
    status = (await api.post(LEASES.format(namespace), body)).refused(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "spec.leaseDurationSeconds"
