"""Who may do what on NATS: users, and the subjects that each may use, generated from the catalogue and the streams.

A service may publish its own events and nothing else; a reader may make short-lived consumers, and touch no durable but
its own; only the user `topology` may make or change streams. Replies come on a prefix per user, so that nobody reads
another's. `python -m overspill_bus.permissions` prints the part of nats-server's configuration that deploy/ carries.
"""

import json
import sys
from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct

from overspill_events.catalog import CATALOG
from overspill_events.subjects import DLQ, DLQ_ROOT, STREAM, subject_filter

AUDITOR: Final = "auditor"  # people and programs that only look: `nats subscribe`, `overspill doctor`
TOPOLOGY: Final = "topology"
EVERY_SERVICE: Final = "*"  # of the catalogue: events that each service has
ROOT: Final = "overspill"  # of every subject of ours: events and dead letters
_API: Final = "$JS.API"
_READING: Final = ("CREATE", "INFO", "MSG.NEXT", "DELETE")  # what a short-lived consumer takes
_WRITING: Final = ("CREATE", "MSG.NEXT", "DELETE")  # what moves a durable


class Use(Struct, frozen=True, kw_only=True):
    """How a service uses the bus beyond publishing: whether it reads the record, and which durables it works off."""

    reads: bool = False
    durables: tuple[str, ...] = ()


USES: Final[dict[str, Use]] = {
    "sampler": Use(),
    "decider": Use(reads=True),
    "evictor": Use(reads=True),
    "admitter": Use(reads=True),
    "bridge": Use(),
    "recorder": Use(reads=True, durables=("recorder",)),
}
_DURABLES: Final = frozenset(durable for use in USES.values() for durable in use.durables)


class User(Struct, frozen=True, kw_only=True):
    """One user of nats-server and the subjects it may use."""

    name: str
    publish: tuple[str, ...]
    deny_publish: tuple[str, ...] = ()
    subscribe: tuple[str, ...]

    @property
    def password_variable(self) -> str:
        """The environment variable that holds its password where the server runs."""
        return f"NATS_{self.name.upper()}_PASSWORD"


def users(*, cluster: str | None = None) -> tuple[User, ...]:
    """Every user. With `cluster` a service may only speak in that cluster's name."""
    return (*(_service(name, use, cluster) for name, use in USES.items()), _topology(), _auditor())


def users_config(*, password_of: Callable[[User], str] | None = None, cluster: str | None = None) -> str:
    """The `authorization` block of nats-server's configuration.

    Passwords are taken from the server's environment (`User.password_variable`) unless `password_of` gives them.
    """
    lines = ["authorization {", "  users = ["]
    for user in users(cluster=cluster):
        password = f"${user.password_variable}" if password_of is None else json.dumps(password_of(user))
        lines += [
            f"    {{ user: {user.name}, password: {password}, permissions: {{",
            f"        publish: {{ allow: {_listed(user.publish)}"
            + (f", deny: {_listed(user.deny_publish)}" if user.deny_publish else "")
            + " }",
            f"        subscribe: {{ allow: {_listed(user.subscribe)} }} }} }}",
        ]
    return "\n".join([*lines, "  ]", "}", ""])


def _service(name: str, use: Use, cluster: str | None) -> User:
    publish = [subject_filter(event, cluster=cluster, service=name) for event in _events_of(name)]
    # The sender looks after a lost answer; a reader asks how long the stream is.
    publish += [f"{_API}.STREAM.INFO.{STREAM}", f"{_API}.STREAM.MSG.GET.{STREAM}"]
    deny: list[str] = []
    if use.reads:
        publish += [f"{_API}.CONSUMER.{verb}.{STREAM}.*" for verb in _READING]
        deny = [
            f"{_API}.CONSUMER.{verb}.{STREAM}.{other}"
            for other in sorted(_DURABLES - {*use.durables})
            for verb in _READING
        ]
    for durable in use.durables:
        publish += [
            f"{_API}.CONSUMER.RESET.{STREAM}.{durable}",
            f"$JS.ACK.{STREAM}.{durable}.>",
            f"{DLQ_ROOT}.{durable}.>",
        ]
    return User(name=name, publish=tuple(publish), deny_publish=tuple(deny), subscribe=(f"_INBOX_{name}.>",))


def _events_of(service: str) -> Iterable[type]:
    return [event for event in CATALOG.values() if event.spec.service in {service, EVERY_SERVICE}]


def _topology() -> User:
    publish = [f"{_API}.STREAM.{verb}.{name}" for name in (STREAM, DLQ) for verb in ("INFO", "CREATE", "UPDATE")]
    return User(name=TOPOLOGY, publish=tuple(publish), subscribe=(f"_INBOX_{TOPOLOGY}.>",))


def _auditor() -> User:
    publish = [f"{_API}.INFO", f"{_API}.STREAM.NAMES", f"{_API}.STREAM.LIST"]
    for name in (STREAM, DLQ):
        publish += [f"{_API}.STREAM.INFO.{name}", f"{_API}.STREAM.MSG.GET.{name}", f"{_API}.DIRECT.GET.{name}.>"]
        publish += [f"{_API}.CONSUMER.{verb}.{name}.*" for verb in _READING]
        publish += [f"{_API}.CONSUMER.CREATE.{name}.*.>"]  # other clients name the filter in the subject
    deny = [f"{_API}.CONSUMER.{verb}.{STREAM}.{one}" for one in sorted(_DURABLES) for verb in _WRITING]
    deny += [f"{_API}.CONSUMER.CREATE.{STREAM}.{one}.>" for one in sorted(_DURABLES)]
    subscribe = (f"{ROOT}.>", "_INBOX.>", f"_INBOX_{AUDITOR}.>", "_INBOX_doctor.>")
    return User(name=AUDITOR, publish=tuple(publish), deny_publish=tuple(deny), subscribe=subscribe)


def _listed(subjects: Iterable[str]) -> str:
    return "[" + ", ".join(json.dumps(subject) for subject in subjects) + "]"


if __name__ == "__main__":
    sys.stdout.write(users_config())
