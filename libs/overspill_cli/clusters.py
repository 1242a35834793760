"""The cluster that an operator's command is about: from the environment, and changed only when it was named."""

import contextlib
import getpass
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from overspill_cli.output import UsageError
from overspill_kube.client import Client
from overspill_kube.client import connect as connect_kube
from overspill_kube.contexts import ContextRefused, require_context
from overspill_kube.errors import ConfigError
from overspill_kube.settings import KubeSettings
from overspill_runtime.settings import CommonSettings, load

FIELD_MANAGER: Final = "overspill-operator"
LONGEST: Final = 1_000_000  # of any unit: longer than anybody waits
UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class Place(Struct, frozen=True, kw_only=True):
    """A cluster, the settings that lead to it, and who asks."""

    kube: Client
    settings: CommonSettings
    by: str


@contextlib.asynccontextmanager
async def reach(env: Mapping[str, str], *, allowed: Sequence[str] | None = None) -> AsyncIterator[Place]:
    """The cluster of OVERSPILL_KUBECONFIG and OVERSPILL_CONTEXT. With `allowed` it is to be changed, and its context
    must be one of these, or be called kind-* or overspill-*.

    Raises UsageError for a context that nobody named and a kubeconfig that cannot be used, SettingsError.
    """
    settings = load(CommonSettings, service="operator", env=env)
    kube = KubeSettings(kubeconfig=settings.kubeconfig, context=settings.context, user_agent=FIELD_MANAGER)
    try:
        if allowed is not None:
            require_context(kube, allowed)
        async with connect_kube(kube) as client:
            yield Place(kube=client, settings=settings, by=_who())
    except (ContextRefused, ConfigError) as error:
        raise UsageError(str(error)) from error


def end_of(text: str | None, *, now: datetime) -> datetime | None:
    """When something that begins now and lasts 30s, 15m, 2h or 1d ends, in whole seconds; None for no end.

    Raises UsageError.
    """
    if text is None:
        return None
    lasting = duration_of("--for", text)
    try:
        return now.replace(microsecond=0) + lasting
    except OverflowError:
        raise UsageError(f"--for {text!r}: that is too long; leave --for out for no end") from None


def duration_of(option: str, text: str) -> timedelta:
    """30s, 15m, 2h or 1d. Raises UsageError that names the option."""
    amount, unit = text[:-1], text[-1:]
    if unit in UNITS and amount.isascii() and amount.isdigit() and 0 < int(amount) < LONGEST:
        return timedelta(**{UNITS[unit]: int(amount)})
    raise UsageError(f"{option} {text!r}: give a whole number above 0 with its unit: 30s, 15m, 2h, 1d")


def _who() -> str:
    """The user of this machine: a hint for people; the API server's audit log knows for sure."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
