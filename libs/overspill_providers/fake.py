"""Client of the lab's GPU cloud over its HTTP API: the first implementation of the provider protocol.

It classifies by the machine code in the answer's body and retries nothing: whether a call may be repeated is the
bridge's decision. It must not know what the cloud's faults are called.
"""

from typing import Any, TypeVar

import aiohttp
import msgspec

from overspill_events.catalog import Offering, Time
from overspill_providers.errors import ErrorKind, ProviderError
from overspill_providers.protocol import Created, CreateRequest, Instance, InstanceState, Inventory

T = TypeVar("T", bound=msgspec.Struct)
PAGE_SIZE = 200
MAX_PAGES = 1_000  # a cursor that never ends is a fault of the cloud, not a reason to list forever


class _WireInstance(msgspec.Struct, frozen=True, rename="camel"):
    id: str
    name: str
    state: str
    offering: str
    gpus: int
    price_per_hour: float
    created_at: Time
    tags: dict[str, str] = {}
    running_at: Time | None = None
    exit_code: int | None = None
    message: str = ""
    endpoint: str = ""
    billed_hours: float | None = None


class _Page(msgspec.Struct, frozen=True, rename="camel"):
    instances: tuple[_WireInstance, ...]
    complete: bool
    next: str | None = None


class _CreatedAnswer(msgspec.Struct, frozen=True):
    id: str
    committed: bool


class _OfferingsAnswer(msgspec.Struct, frozen=True):
    offerings: tuple[Offering, ...]


class FakeCloudProvider:
    """The provider `name` at `url` (http or https, no path), with `token` as bearer; `timeout` in seconds per call."""

    def __init__(self, *, url: str, token: str, name: str, timeout: float = 10.0) -> None:
        self._name = name
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"}
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._session: aiohttp.ClientSession | None = None

    @property
    def name(self) -> str:
        return self._name

    async def create(self, request: CreateRequest) -> Created:
        body = {
            "name": request.key,
            "offering": request.offering,
            "tags": dict(request.tags),
            "image": request.image,
            "command": list(request.command),
            "args": list(request.args),
            "env": dict(request.env),
            "ports": list(request.ports),
        }
        answer = await self._call("POST", "/v1/instances", body=body)
        created = self._decode(answer, _CreatedAnswer)
        return Created(instance_id=created.id, committed=created.committed)

    async def list(self) -> Inventory:
        instances: dict[str, Instance] = {}
        cursor: str | None = ""
        for _ in range(MAX_PAGES):
            page = self._decode(
                await self._call("GET", "/v1/instances", params={"limit": str(PAGE_SIZE), "page": cursor or ""}), _Page
            )
            instances.update((wire.id, _instance(wire)) for wire in page.instances)
            if not page.complete:
                return Inventory(instances=tuple(instances.values()), complete=False)
            if page.next is None:
                return Inventory(instances=tuple(instances.values()), complete=True)
            cursor = page.next
        return Inventory(instances=tuple(instances.values()), complete=False)

    async def terminate(self, instance_id: str) -> None:
        await self._call("DELETE", f"/v1/instances/{instance_id}", gone_is_success=True)

    async def offerings(self) -> tuple[Offering, ...]:
        return self._decode(await self._call("GET", "/v1/offerings"), _OfferingsAnswer).offerings

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _call(
        self,
        method: str,
        path: str,
        *,
        body: dict[str, Any] | None = None,
        params: dict[str, str] | None = None,
        gone_is_success: bool = False,
    ) -> bytes:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=64)
            self._session = aiohttp.ClientSession(headers=self._headers, timeout=self._timeout, connector=connector)
        try:
            async with self._session.request(method, self._url + path, json=body, params=params) as response:
                data = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ProviderError(ErrorKind.UNKNOWN, f"{method} {path}: {error or type(error).__name__}") from error
        if response.status in (200, 201, 202, 204) or (gone_is_success and response.status in (404, 410)):
            return data
        raise _refusal(response.status, data, response.headers.get("Retry-After"))

    @staticmethod
    def _decode(data: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(data, type=kind)
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            raise ProviderError(ErrorKind.UNKNOWN, f"answer not understood: {error}") from error


def _instance(wire: _WireInstance) -> Instance:
    return Instance(
        id=wire.id,
        key=wire.name,
        state=InstanceState.read(wire.state),
        offering=wire.offering,
        gpus=wire.gpus,
        price_per_hour=wire.price_per_hour,
        created_at=wire.created_at,
        tags=wire.tags,
        running_at=wire.running_at,
        exit_code=wire.exit_code,
        message=wire.message,
        endpoint=wire.endpoint,
        billed_hours=wire.billed_hours,
    )


_BY_STATUS = {401: ErrorKind.AUTH, 403: ErrorKind.AUTH, 402: ErrorKind.PAYMENT, 429: ErrorKind.RATE_LIMITED}
_BY_CODE = {
    "no-capacity": ErrorKind.NO_CAPACITY,
    "quota-exceeded": ErrorKind.QUOTA,
    "unauthorized": ErrorKind.AUTH,
    "payment-required": ErrorKind.PAYMENT,
    "invalid": ErrorKind.INVALID,
    "image": ErrorKind.IMAGE,
    "rate-limited": ErrorKind.RATE_LIMITED,
}


def _refusal(status: int, data: bytes, retry_after: str | None) -> ProviderError:
    """The cloud answers {"error": {"code", "message"}}; anything else is judged by status, and a 5xx blames nobody."""
    code, message = "", data[:200].decode(errors="replace")
    try:
        error = msgspec.json.decode(data)["error"]
        code, message = str(error["code"]), str(error["message"])
    except (msgspec.DecodeError, KeyError, TypeError):
        message = message or "no body"
    kind = ErrorKind.UNKNOWN if status >= 500 else _BY_CODE.get(code, _BY_STATUS.get(status, ErrorKind.UNKNOWN))  # noqa: PLR2004
    seconds = float(retry_after) if retry_after and retry_after.isdecimal() else None
    return ProviderError(kind, f"HTTP {status}: {message}", retry_after=seconds)
