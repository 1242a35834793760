"""Requests and streams over kubernetes-asyncio's session: bytes in, bytes out, every one with a timeout.

It turns every way in which a network can fail into `KubeUnavailable`, and renews credentials that a server refuses
(tokens rotate while a process lives). It must not know what the bytes mean.
"""

import contextlib
import ipaddress
import os
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlencode

import aiohttp
import yarl
from msgspec import Struct

from overspill_kube import library
from overspill_kube.errors import ConfigError, KubeUnavailable
from overspill_kube.settings import KubeSettings
from overspill_runtime.clock import Clock

CONNECT_SECONDS: Final = 5.0
# A refused token is read anew, but an API server that refuses everything must not make us run a login plugin per
# request.
RELOAD_EVERY_SECONDS: Final = 5.0
MAX_CONNECTIONS: Final = 512
READ_BUFFER: Final = 2**18  # bytes; what is decoded in one go must not hold up the loop
_TRANSPORT_ERRORS: Final = (aiohttp.ClientError, TimeoutError, OSError)

OnRequest = Callable[[str, str, int, float], None]  # method, path, HTTP status (0: no answer), seconds


class Reply(Struct, frozen=True):
    """An answer, whatever its status."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def retry_after(self) -> float | None:
        """The Retry-After header in seconds; None when absent or no number."""
        return retry_after_of(self.headers)


class Stream(Struct, frozen=True):
    """An answer whose body is still coming. `chunks` raises KubeUnavailable when the connection breaks or is silent."""

    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]


class Requests(Protocol):
    """What a client needs of a transport; see `Transport` for what each raises."""

    @property
    def settings(self) -> KubeSettings: ...

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        seconds: float | None = None,
    ) -> Reply: ...

    def stream(
        self, path: str, *, params: Mapping[str, str], silence_seconds: float, total_seconds: float
    ) -> contextlib.AbstractAsyncContextManager[Stream]: ...


def retry_after_of(headers: Mapping[str, str]) -> float | None:
    """Seconds that a server wishes us to wait; API servers send whole seconds, never dates."""
    value = headers.get("Retry-After", "")
    return float(value) if value.isdecimal() else None


class Transport:
    """A session with one API server. Made by `open_transport`."""

    def __init__(self, settings: KubeSettings, clock: Clock, configuration: Any, on_request: OnRequest | None) -> None:
        self.settings = settings
        self._clock = clock
        self._configuration = configuration
        self._on_request = on_request
        self._host = str(configuration.host).rstrip("/")
        self._rest = library.RESTClientObject(configuration, maxsize=MAX_CONNECTIONS)
        # The library's connector (TLS, client certificate), but our own session: the library's would send requests for
        # a server on this very machine to the proxy of the environment.
        self._session = aiohttp.ClientSession(
            connector=self._rest.pool_manager.connector,
            connector_owner=False,
            trust_env=not _is_loopback(self._host),
            read_bufsize=READ_BUFFER,
        )
        self._reloaded_at = float("-inf")

    async def close(self) -> None:
        """Close the sessions and every connection."""
        await self._session.close()
        await self._rest.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        seconds: float | None = None,
    ) -> Reply:
        """Send one request and read the whole answer. Raises KubeUnavailable when there is none within `seconds`."""
        total = self.settings.request_seconds if seconds is None else seconds
        timeout = aiohttp.ClientTimeout(total=total, sock_connect=min(CONNECT_SECONDS, total))
        headers = {"Content-Type": content_type} if body is not None else {}
        started, status = self._clock.monotonic(), 0
        try:
            for last in (False, True):
                async with await self._send(
                    method, path, params, headers=headers, timeout=timeout, body=body
                ) as response:
                    status = response.status
                    reply = Reply(status, response.headers, await response.read())
                if status != 401 or last or not await self._reload():  # noqa: PLR2004
                    break
        except _TRANSPORT_ERRORS as error:
            raise KubeUnavailable(f"{method} {path}: {_words(error)}") from error
        finally:
            if self._on_request is not None:
                self._on_request(method, path, status, self._clock.monotonic() - started)
        return reply

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str], silence_seconds: float, total_seconds: float
    ) -> AsyncIterator[Stream]:
        """A long answer. It fails with KubeUnavailable after `silence_seconds` without a byte, or `total_seconds`."""
        timeout = aiohttp.ClientTimeout(total=total_seconds, sock_connect=CONNECT_SECONDS, sock_read=silence_seconds)
        started, status = self._clock.monotonic(), 0
        try:
            # A compressed stream would be held back until a block is full.
            response = await self._send("GET", path, params, headers={"Accept-Encoding": "identity"}, timeout=timeout)
            status = response.status
        except _TRANSPORT_ERRORS as error:
            raise KubeUnavailable(f"watch {path}: {_words(error)}") from error
        finally:
            if self._on_request is not None:
                self._on_request("WATCH", path, status, self._clock.monotonic() - started)
        try:
            if status == 401 and await self._reload():  # noqa: PLR2004
                raise KubeUnavailable(f"watch {path}: the credentials had expired and were read anew", status=status)
            yield Stream(status, response.headers, _chunks(response, path))
        finally:
            response.close()

    async def _send(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        *,
        headers: Mapping[str, str],
        timeout: aiohttp.ClientTimeout,
        body: bytes | None = None,
    ) -> aiohttp.ClientResponse:
        url = f"{self._host}{path}" + (f"?{urlencode(params)}" if params else "")
        extra: dict[str, Any] = {"proxy": self._rest.proxy, "proxy_headers": self._rest.proxy_headers}
        if self._rest.server_hostname:
            extra["server_hostname"] = self._rest.server_hostname
        return await self._session.request(
            method,
            yarl.URL(url, encoded=True),
            headers={
                "Accept": "application/json",
                "User-Agent": self.settings.user_agent,
                **await self._authorization(),
                **headers,
            },
            data=body,
            timeout=timeout,
            allow_redirects=False,
            **extra,
        )

    async def _authorization(self) -> dict[str, str]:
        # The hook of in-cluster credentials re-reads the token file every minute; the file's last newline stays in the
        # token.
        token = await self._configuration.get_api_key_with_prefix("BearerToken")
        return {"Authorization": token.strip()} if token else {}

    async def _reload(self) -> bool:
        """Read the credentials again. False when that was done a moment ago or cannot be done: the 401 then stands."""
        now = self._clock.monotonic()
        if now - self._reloaded_at < RELOAD_EVERY_SECONDS:
            return False
        self._reloaded_at = now
        try:
            self._configuration = await load_configuration(self.settings)
        except ConfigError:
            return False
        return True


async def _chunks(response: aiohttp.ClientResponse, path: str) -> AsyncIterator[bytes]:
    try:
        async for chunk in response.content.iter_any():
            yield chunk
    except _TRANSPORT_ERRORS as error:
        raise KubeUnavailable(f"watch {path}: {_words(error)}") from error


def _is_loopback(host: str) -> bool:
    name = yarl.URL(host).host or ""
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__


async def load_configuration(settings: KubeSettings) -> Any:
    """Host, TLS and credentials, by kubernetes-asyncio. Raises ConfigError that names the file or the missing part."""
    configuration = library.Configuration()
    source = kubeconfig_of(settings)
    try:
        if source is None:
            library.config.load_incluster_config(client_configuration=configuration)
        else:
            await library.config.load_kube_config(
                config_file=source, context=settings.context, client_configuration=configuration
            )
    except Exception as error:
        # The library raises whatever it stumbled over: its own error, but also AssertionError, TypeError and YAML
        # errors.
        where = "in-cluster credentials" if source is None else f"kubeconfig {source}"
        raise ConfigError(f"{where}: {_words(error)}") from error
    return configuration


def kubeconfig_of(settings: KubeSettings) -> str | None:
    """The kubeconfig to read; None: in-cluster. A file that was named must exist; the default one may be absent."""
    named = settings.kubeconfig or os.environ.get("KUBECONFIG")
    if named:
        files = [Path(part).expanduser() for part in named.split(os.pathsep) if part]
        if not any(file.is_file() for file in files):
            raise ConfigError(f"kubeconfig {named}: no such file")
        return named
    default = Path.home() / ".kube" / "config"
    if default.is_file():
        return str(default)
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return None
    raise ConfigError(
        f"no way to an API server: set OVERSPILL_KUBECONFIG or KUBECONFIG, or provide {default}, or run in a pod"
    )


@contextlib.asynccontextmanager
async def open_transport(
    settings: KubeSettings, *, clock: Clock, on_request: OnRequest | None = None
) -> AsyncIterator[Transport]:
    """A session, closed at the end. Nothing is sent yet. Raises ConfigError."""
    transport = Transport(settings, clock, await load_configuration(settings), on_request)
    try:
        yield transport
    finally:
        await transport.close()
