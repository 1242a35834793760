"""The provider's own books, read over its API as an accountant would. It must not know the bridge."""

from datetime import datetime

import aiohttp
import msgspec
from msgspec import Struct

from overspill_demo.invariants import Lifetime
from overspill_events import names


class _Instance(Struct, rename="camel"):
    id: str
    gpus: int
    tags: dict[str, str]
    created_at: datetime
    ended_at: datetime | None
    pod_uid: str | None


class _Audit(Struct, rename="camel"):
    instances: list[_Instance]


class Totals(Struct, frozen=True, rename="camel"):
    """What the provider charges: hours of instances and GPUs, dollars."""

    instances: int = 0
    living: int = 0
    hours: float = 0.0
    gpu_hours: float = 0.0
    cost: float = 0.0


class _Bill(Struct):
    totals: Totals


class ProviderBooks:
    """Bill and audit of one provider."""

    def __init__(self, url: str, token: str, session: aiohttp.ClientSession) -> None:
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"}
        self._session = session

    async def totals(self) -> Totals:
        """What is charged up to now."""
        return msgspec.json.decode(await self._get("/v1/bill"), type=_Bill).totals

    async def lifetimes(self, cluster_uid: str) -> tuple[Lifetime, ...]:
        """Every instance that ever was."""
        audit = msgspec.json.decode(await self._get("/v1/audit"), type=_Audit)
        return tuple(
            Lifetime(
                instance=instance.id,
                pod_uid=instance.pod_uid or "",
                gpus=instance.gpus,
                created=instance.created_at.timestamp(),
                ended=instance.ended_at.timestamp() if instance.ended_at else None,
                ours=instance.tags.get(names.CLUSTER_TAG) == cluster_uid,
            )
            for instance in audit.instances
        )

    async def _get(self, path: str) -> bytes:
        async with self._session.get(self._url + path, headers=self._headers) as answer:
            answer.raise_for_status()
            return await answer.read()
