"""Reading the ConfigMaps and Secrets that environments refer to; briefly remembered, for replicas come in numbers.

Values may be secrets: they live here for seconds and are never logged.
"""

import base64
import binascii
from collections.abc import Iterable

from overspill_bridge.environment import Source
from overspill_kube.client import Client
from overspill_kube.resources import CONFIG_MAPS, SECRETS

REMEMBERED_SECONDS = 5.0


class SourceReader:
    """Live reads behind a memory of a few seconds."""

    def __init__(self, kube: Client) -> None:
        self._kube = kube
        self._memory: dict[tuple[str, Source], tuple[float, dict[str, str] | None]] = {}

    async def read(self, namespace: str, sources: Iterable[Source]) -> dict[Source, dict[str, str] | None]:
        """Text values of each source; None for one that does not exist. Raises KubeUnavailable or KubeError."""
        now = self._kube.clock.monotonic()
        self._memory = {key: entry for key, entry in self._memory.items() if entry[0] > now}
        found: dict[Source, dict[str, str] | None] = {}
        for source in sources:
            key = (namespace, source)
            if key not in self._memory:
                self._memory[key] = (now + REMEMBERED_SECONDS, await self._fetch(namespace, source))
            found[source] = self._memory[key][1]
        return found

    async def _fetch(self, namespace: str, source: Source) -> dict[str, str] | None:
        if source.kind == "ConfigMap":
            config = await self._kube.get(CONFIG_MAPS, source.name, namespace)
            return None if config is None else dict(config.data)
        secret = await self._kube.get(SECRETS, source.name, namespace)
        if secret is None:
            return None
        decoded = {name: _text(value) for name, value in secret.data.items()}
        return {name: value for name, value in decoded.items() if value is not None}


def _text(encoded: str) -> str | None:
    """The value as text; None for bytes that are none, which no environment can hold."""
    try:
        return base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
