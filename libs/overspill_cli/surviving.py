"""Which instances live at providers under our tags: asked of the providers alone, no cluster and no bus needed.

Only complete lists prove that nothing is there. Used by `overspill doctor --provider` and by `overspill uninstall`.
"""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct

from overspill_cli.output import Exit, Format, UsageError, print_json, table
from overspill_events.names import CLUSTER_TAG, NODE_TAG, POD_TAG
from overspill_providers.errors import ProviderError
from overspill_providers.protocol import Instance, Inventory, Provider
from overspill_providers.registry import build_providers
from overspill_runtime.clock import Clock, SystemClock

SETTING: Final = "OVERSPILL_BRIDGE_PROVIDERS"


class Survivor(Struct, frozen=True, kw_only=True, rename="camel"):
    """A living instance of ours; age in seconds, price in dollars per hour."""

    provider: str
    instance: str
    state: str
    cluster: str
    node: str
    pod: str
    age_seconds: float
    price_per_hour: float


class Look(Struct, frozen=True, kw_only=True):
    """One look at all providers. With a problem, what is missing from `survivors` is not known to be gone."""

    survivors: tuple[Survivor, ...]
    problems: tuple[str, ...]

    @property
    def proves_absence(self) -> bool:
        """Whether nothing of ours lives anywhere."""
        return not self.survivors and not self.problems


def survivors_in(inventory: Inventory, *, provider: str, now: datetime, cluster: str | None) -> tuple[Survivor, ...]:
    """Living instances with our tag, of one cluster or of any (None), the oldest first."""
    ours = [
        one
        for one in inventory.instances
        if one.is_living and (one.tags.get(CLUSTER_TAG) == cluster if cluster else CLUSTER_TAG in one.tags)
    ]
    return tuple(_survivor(one, provider, now) for one in sorted(ours, key=lambda one: (one.created_at, one.id)))


def _survivor(instance: Instance, provider: str, now: datetime) -> Survivor:
    return Survivor(
        provider=provider,
        instance=instance.id,
        state=instance.state.value,
        cluster=instance.tags[CLUSTER_TAG],
        node=instance.tags.get(NODE_TAG, ""),
        pod=instance.tags.get(POD_TAG, ""),
        age_seconds=(now - instance.created_at).total_seconds(),
        price_per_hour=instance.price_per_hour,
    )


def providers_of(env: Mapping[str, str], given: Sequence[str]) -> tuple[Provider, ...]:
    """The providers that were named, or the bridge's own. Raises UsageError for none and for what is none."""
    setting = ",".join(given) or env.get(SETTING, "").strip()
    if not setting:
        raise UsageError(f"no provider named: give --provider NAME=URL?token=TOKEN or set {SETTING}")
    try:
        return build_providers(setting)
    except ValueError as error:
        raise UsageError(str(error)) from error


async def look(providers: Sequence[Provider], *, clock: Clock, cluster: str | None = None) -> Look:
    """Ask every provider for its complete list."""
    found: list[Survivor] = []
    problems: list[str] = []
    for provider in providers:
        try:
            inventory = await provider.list()
        except ProviderError as error:
            problems.append(f"{provider.name}: {error}")
            continue
        found += survivors_in(inventory, provider=provider.name, now=clock.now(), cluster=cluster)
        if not inventory.complete:
            problems.append(f"{provider.name}: its list was incomplete")
    return Look(survivors=tuple(found), problems=tuple(problems))


async def examine_providers(
    env: Mapping[str, str], *, given: Sequence[str], expect_none: bool, output: Format, cluster: str | None = None
) -> Exit:
    """Print what lives, of the cluster with this UID or of any. Exit code 1 when a provider could not be asked whole,
    or one lives that should not.
    """
    providers = providers_of(env, given)
    async with AsyncExitStack() as stack:
        for provider in providers:
            stack.push_async_callback(provider.close)
        seen = await look(providers, clock=SystemClock(), cluster=cluster)
    if output is Format.json:
        print_json({"survivors": msgspec.to_builtins(seen.survivors), "problems": seen.problems})
    else:
        rows = [row_of(one) for one in seen.survivors]
        if rows:
            table(("PROVIDER", "INSTANCE", "STATE", "CLUSTER", "NODE", "POD", "AGE", "$/H"), rows)
        for problem in seen.problems:
            print(f"not known: {problem}")
        total = sum(one.price_per_hour for one in seen.survivors)
        known = "at least " if seen.problems else ""  # who could not be asked may hold more
        whose = f"of the cluster {cluster}" if cluster else "with our tags, of whatever cluster,"
        print(f"{known}{len(rows)} instances {whose} live at {len(providers)} providers, ${total:g} per hour")
    return Exit.BROKEN if seen.problems or (expect_none and seen.survivors) else Exit.FINE


def row_of(one: Survivor) -> tuple[str, ...]:
    """A survivor as a row of a table."""
    age = f"{one.age_seconds / 3600:.1f} h"
    return (one.provider, one.instance, one.state, one.cluster, one.node, one.pod, age, f"{one.price_per_hour:g}")
