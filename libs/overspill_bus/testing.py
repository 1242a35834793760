"""A throw-away nats-server for tests. Services must not import this module."""

import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from overspill_bus.server import NatsServer, start_nats_server


@contextlib.asynccontextmanager
async def nats_server(*, config: str | None = None) -> AsyncIterator[NatsServer]:
    """A real server on a free port with a store of its own, stopped and removed at the end.

    `config`: text of a nats-server configuration, for instance users with permissions.
    """
    with tempfile.TemporaryDirectory(prefix="overspill-nats-") as directory:
        root = Path(directory)
        file = None
        if config is not None:
            file = root / "nats.conf"
            file.write_text(config)
        server = await start_nats_server(store=root / "store", config=file)
        try:
            yield server
        finally:
            await server.stop()
