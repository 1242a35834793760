"""From one setting to providers: `name=http://host:port?token=…`, several separated by commas.

One place knows which scheme belongs to which implementation. Tokens stay inside the providers: error messages name the
entry's position and name, never its text.
"""

from urllib.parse import parse_qsl, urlsplit, urlunsplit

from overspill_providers.fake import FakeCloudProvider
from overspill_providers.protocol import Provider
from overspill_runtime.addresses import url_fault

_SCHEMES = ("http", "https")
_ACCEPTED = "NAME=http://HOST:PORT?token=TOKEN (or https), several separated by commas"


def build_providers(setting: str, *, timeout: float = 10.0) -> tuple[Provider, ...]:
    """Providers named by `setting`, in its order; `timeout` is in seconds per call.

    Raises ValueError that names the entry and what is accepted: for an empty setting, a missing name, host or token, a
    parameter, port or scheme that cannot be, or a name given twice.
    """
    entries = [entry.strip() for entry in setting.split(",") if entry.strip()]
    if not entries:
        raise ValueError(f"providers: no provider named; accepted: {_ACCEPTED}")
    providers: dict[str, Provider] = {}
    for position, entry in enumerate(entries, start=1):
        name, provider = _build(entry, position=position, timeout=timeout)
        if name in providers:
            raise ValueError(f"providers: entry {position}: the name {name!r} is given twice")
        providers[name] = provider
    return tuple(providers.values())


def _build(entry: str, *, position: int, timeout: float) -> tuple[str, Provider]:
    name, separator, address = entry.partition("=")
    name = name.strip()
    where = f"providers: entry {position} ({name if separator else 'no name'})"
    if not separator or not name.replace("-", "").isalnum() or name != name.lower():
        raise ValueError(f"{where}: a name of lower-case letters, digits and '-' is needed; accepted: {_ACCEPTED}")
    if (fault := url_fault(address.partition("?")[0])) is not None:
        raise ValueError(f"{where}: {fault}; accepted: {_ACCEPTED}")
    parts = urlsplit(address)
    if parts.scheme not in _SCHEMES:
        raise ValueError(f"{where}: scheme {parts.scheme!r} is not one of {', '.join(_SCHEMES)}; accepted: {_ACCEPTED}")
    parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
    token = parameters.pop("token", "")
    if not token:
        raise ValueError(f"{where}: no token; accepted: {_ACCEPTED}")
    if parameters:
        # Not by their names: one may be the rest of a token.
        raise ValueError(f"{where}: there are more parameters than token, in which & is written %26")
    url = urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))
    return name, FakeCloudProvider(url=url, token=token, name=name, timeout=timeout)
