"""Addresses as they may stand in a setting, beyond what a pattern can say of them.

What is said of a fault goes to a terminal: never a part of an address that may be a password.
"""

import re
from collections.abc import Callable
from typing import Annotated, Final
from urllib.parse import urlsplit

from msgspec import Meta

PORT_MAX: Final = 65535
_AT_AFTER_HOST: Final = re.compile(r"://[^/?#]*[/?#].*@")


def checked(fault: Callable[[str], str | None], accepted: str) -> Meta:
    """For Annotated text whose rules are more than a pattern: `fault` says what is wrong with it, `accepted` what is
    right.
    """
    return Meta(extra={"fault": fault, "accepted": accepted})


def url_fault(url: str) -> str | None:
    """What keeps it from being a URL that can be connected to; None when nothing does."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "that is no URL"
    if not parts.hostname:
        return "a host is missing"
    try:
        possible = parts.port is None or parts.port > 0
    except ValueError:
        possible = False
    return None if possible else f"its port is no number from 1 to {PORT_MAX}"  # it may be a token without its "?"


def _nats_fault(text: str) -> str | None:
    return next((fault for url in text.split(",") if (fault := _nats_url_fault(url)) is not None), None)


def _nats_url_fault(url: str) -> str | None:
    """One server's: it has no path, so what comes before an @ is a password wherever the @ stands."""
    return "write / ? # of a password as %2F %3F %23" if _AT_AFTER_HOST.search(url) else url_fault(url)


def _listen_fault(text: str) -> str | None:
    port = text.rpartition(":")[2]
    return None if int(port) <= PORT_MAX else f"{port!r} is no port"


NatsUrl = Annotated[
    str,
    Meta(pattern=r"^(nats|tls)://[^\s,]+(,(nats|tls)://[^\s,]+)*$"),
    checked(
        _nats_fault,
        f"(nats|tls)://[USER:PASSWORD@]HOST[:PORT] with a port from 1 to {PORT_MAX}, several separated by commas",
    ),
]
HttpUrl = Annotated[
    str,
    Meta(pattern=r"^https?://\S+$"),
    checked(url_fault, f"http[s]://HOST[:PORT][/PATH] with a port from 1 to {PORT_MAX}"),
]
Listen = Annotated[
    str,
    Meta(pattern=r"^[^:\s]+:\d{1,5}$"),
    checked(_listen_fault, f"text matching HOST:PORT with a port from 0 (any free one) to {PORT_MAX}"),
]
