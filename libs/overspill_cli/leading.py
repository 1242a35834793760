"""Who leads: read off the leases that services renew wherever they run, in pods or as plain processes.

A lease's times are of the leader's clock. One that has expired by ours is looked at again: whoever renews it leads.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Final

from msgspec import Struct

from overspill_cli.clusters import Place
from overspill_events.moments import stamp
from overspill_events.names import FIELD_MANAGER_PREFIX, LEADING
from overspill_kube.lease import RETRY_SHARE
from overspill_kube.resources import LEASES
from overspill_objects.coordination import Lease

LOOK_SECONDS: Final = 0.5
SHORTEST_LOOK_SECONDS: Final = 2.0
RENEWALS: Final = 2  # that a leader would have made before it is believed to be none


class Seat(Struct, frozen=True, kw_only=True):
    """One lease of a service, or the absence of any. `vacancy` says why nobody leads by it; empty: `holder` does."""

    lease: str  # namespace/name
    holder: str = ""
    vacancy: str = ""
    was_led: bool = True  # False: there is no lease


async def seats(place: Place, services: Sequence[str] = LEADING) -> dict[str, tuple[Seat, ...]]:
    """The seats of each service, at least one: a bridge has one for each virtual node that was ever led.

    Raises KubeError and KubeUnavailable.
    """
    clock, namespace = place.kube.clock, place.settings.namespace
    found = await _leases(place, services)
    doubtful = {name for name, lease in found.items() if _has_expired(lease, place)}
    patience = clock.monotonic() + max((_patience(found[name]) for name in doubtful), default=0.0)
    while doubtful and clock.monotonic() < patience:
        await clock.sleep(LOOK_SECONDS)
        again = await _leases(place, services)
        doubtful = {name for name in doubtful if name not in again or not _was_renewed(found[name], again[name])}
    return {
        service: tuple(_seat(found[name], expired=name in doubtful) for name in _of(service, found))
        or (Seat(lease=f"{namespace}/{FIELD_MANAGER_PREFIX}{service}", vacancy="it has no lease", was_led=False),)
        for service in services
    }


async def _leases(place: Place, services: Sequence[str]) -> dict[str, Lease]:
    found = (await place.kube.list(LEASES, namespace=place.settings.namespace)).items
    by_name = {one.metadata.name: one for one in found}
    return {name: by_name[name] for service in services for name in _of(service, by_name)}


def _of(service: str, names: Iterable[str]) -> list[str]:
    own = f"{FIELD_MANAGER_PREFIX}{service}"
    return sorted(name for name in names if name == own or name.startswith(f"{own}-"))


def _has_expired(lease: Lease, place: Place) -> bool:
    spec = lease.spec
    if not spec.holder_identity or spec.renew_time is None:
        return False
    return spec.renew_time + timedelta(seconds=spec.lease_duration_seconds) < place.kube.clock.now()


def _patience(lease: Lease) -> float:
    return max(SHORTEST_LOOK_SECONDS, RENEWALS * RETRY_SHARE * lease.spec.lease_duration_seconds)


def _was_renewed(before: Lease, after: Lease) -> bool:
    return bool(after.spec.holder_identity) and after.spec.renew_time != before.spec.renew_time


def _seat(lease: Lease, *, expired: bool) -> Seat:
    spec, name = lease.spec, f"{lease.metadata.namespace}/{lease.metadata.name}"
    when = "" if spec.renew_time is None else f" at {stamp(spec.renew_time)}"
    if not spec.holder_identity:
        return Seat(lease=name, vacancy=f"its lease was given back{when}")
    if expired or spec.renew_time is None:
        return Seat(lease=name, vacancy=f"{spec.holder_identity} last renewed its lease{when}")
    return Seat(lease=name, holder=spec.holder_identity)


def vacancies(found: Mapping[str, Sequence[Seat]]) -> dict[str, str]:
    """Why nobody leads, for each service of which nobody does. One living seat is enough."""
    return {
        service: "; ".join(f"{seat.vacancy} ({seat.lease})" for seat in all_of)
        for service, all_of in found.items()
        if all(seat.vacancy for seat in all_of)
    }
