"""Who leads: read off the leases that services renew wherever they run, in pods or as plain processes.

A lease's times are of the leader's clock, so they prove nothing by ours: whoever renews it before our eyes leads.
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
LONGEST_LOOK_SECONDS: Final = 6.0  # a lease renewed more rarely is believed while it has not expired by our clock
RENEWALS: Final = 2  # that a leader would have made before it is believed to be none


class Seat(Struct, frozen=True, kw_only=True):
    """One lease of a service, or the absence of any. `vacancy` says why nobody leads by it; empty: `holder` does.
    `believed` says why it is believed to, where no renewal was waited for.
    """

    lease: str  # namespace/name
    holder: str = ""
    vacancy: str = ""
    believed: str = ""
    was_led: bool = True  # False: there is no lease


async def seats(
    place: Place, services: Sequence[str] = LEADING, *, thorough: bool = False
) -> dict[str, tuple[Seat, ...]]:
    """The seats of each service, at least one: a bridge has one for each virtual node that was ever led.

    `thorough`: nobody is believed to be none before others might take its lease, however long that takes.
    Raises KubeError and KubeUnavailable.
    """
    clock, namespace = place.kube.clock, place.settings.namespace
    first = last = await _leases(place, services)
    watched = {
        name: _patience(lease, thorough=thorough)
        for name, lease in first.items()
        if lease.spec.holder_identity and (thorough or not _is_believed(lease, place))
    }
    silent, end = set(watched), clock.monotonic() + max(watched.values(), default=0.0)
    while silent and clock.monotonic() < end:
        await clock.sleep(LOOK_SECONDS)
        last = await _leases(place, services)
        silent = {name for name in silent if name in last and last[name].spec == first[name].spec}
    return {
        service: tuple(
            _seat(last[name], silent=name in silent, believed=name in first and name not in watched)
            for name in _of(service, last)
        )
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


def _is_believed(lease: Lease, place: Place) -> bool:
    """Whether waiting for a renewal would be long, and our clock says that it has not expired."""
    spec = lease.spec
    if spec.renew_time is None or _patience(lease) <= LONGEST_LOOK_SECONDS:
        return False
    return spec.renew_time + timedelta(seconds=spec.lease_duration_seconds) >= place.kube.clock.now()


def _patience(lease: Lease, *, thorough: bool = False) -> float:
    """Seconds; thorough: as long as others who want the lease wait for it."""
    share = 1.0 if thorough else RENEWALS * RETRY_SHARE
    return max(SHORTEST_LOOK_SECONDS, share * lease.spec.lease_duration_seconds)


def _seat(lease: Lease, *, silent: bool, believed: bool) -> Seat:
    spec, name = lease.spec, f"{lease.metadata.namespace}/{lease.metadata.name}"
    when = "" if spec.renew_time is None else f" at {stamp(spec.renew_time)}"
    if not spec.holder_identity:
        return Seat(lease=name, vacancy=f"its lease was given back{when}")
    if silent:
        return Seat(lease=name, vacancy=f"{spec.holder_identity} last renewed its lease{when}")
    return Seat(
        lease=name, holder=spec.holder_identity, believed=f"it last renewed its lease{when}" if believed else ""
    )


def vacancies(found: Mapping[str, Sequence[Seat]]) -> dict[str, str]:
    """Why nobody leads, for each service of which nobody does. One living seat is enough."""
    return {
        service: "; ".join(f"{seat.vacancy} ({seat.lease})" for seat in all_of)
        for service, all_of in found.items()
        if all(seat.vacancy for seat in all_of)
    }
