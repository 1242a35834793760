"""What a process must say to use the bus. This module must not read the environment: settings are given."""

from typing import Annotated

from msgspec import Meta, Struct

Seconds = Annotated[float, Meta(gt=0)]
Bytes = Annotated[int, Meta(ge=1_000_000)]
Replicas = Annotated[int, Meta(ge=1, le=5)]


class Topology(Struct, frozen=True, kw_only=True):
    """Limits of the streams: seconds and bytes. `duplicate_window` must outlast a publisher's usual retries."""

    max_age: Seconds = 7 * 86_400.0
    max_bytes: Bytes = 1_000_000_000
    duplicate_window: Seconds = 600.0
    dead_letter_max_age: Seconds = 30 * 86_400.0
    dead_letter_max_bytes: Bytes = 100_000_000
    replicas: Replicas = 1


class BusSettings(Struct, frozen=True, kw_only=True):
    """`service` speaks in `cluster`. `nats_url`: servers separated by commas, each with user:password@ or token@."""

    cluster: str
    service: str
    nats_url: str = "nats://127.0.0.1:4222"
    name: str = ""  # of the connection, as the server's monitoring shows it; empty: the service
    shard: str = ""  # part of the source where a service runs in shards
    buffer_events: Annotated[int, Meta(ge=1)] = 10_000
    credentials_file: str | None = None  # NATS credentials: JWT and seed
    topology: Topology = Topology()
    makes_streams: bool = True  # False: streams are made by somebody with the right to; a missing one is waited for
