"""Looking at a provider: one list and one look at its offerings per poll, whatever the number of pods.

A failing provider changes nothing but its own desk: no pod's phase, no instance. This module decides nothing; it hands
what it sees to the book and says whose picture changed.
"""

from collections.abc import Callable
from typing import Any, Never

from overspill_bridge.desk import Desk
from overspill_bridge.metrics import BridgeMetrics
from overspill_bridge.record import Record
from overspill_bridge.world import World
from overspill_providers.errors import ErrorKind, ProviderError
from overspill_providers.protocol import Inventory, Provider


class Poller:
    """Follows one provider. `on_changed` gets pod UIDs to look at, `on_stock` is called when there is more to buy."""

    def __init__(
        self,
        world: World,
        provider: Provider,
        *,
        record: Record,
        metrics: BridgeMetrics,
        log: Any,
        on_changed: Callable[[set[str]], None],
        on_stock: Callable[[], None],
        on_health: Callable[[], None],
    ) -> None:
        self._world = world
        self._provider = provider
        self._desk: Desk = world.desks[provider.name]
        self._record = record
        self._metrics = metrics
        self._log = log
        self._on_changed = on_changed
        self._on_stock = on_stock
        self._on_health = on_health

    async def run(self) -> Never:
        """Poll until cancelled."""
        while True:
            await self.poll()
            await self._world.clock.sleep(self._world.settings.poll_interval)

    async def poll(self) -> None:
        """One look. A provider's failure is noted at its desk and goes no further."""
        was_healthy = self._desk.is_healthy
        inventory: Inventory | None = None
        try:
            inventory = await self._look()
        except ProviderError as error:
            self._failed(error)
        except Exception as error:  # noqa: BLE001 -- reported; one broken provider must not end the bridge
            # It promised to raise nothing else. The others, and its own running instances, must not suffer for it.
            self._log.exception("provider-broken", provider=self._provider.name)
            self._failed(ProviderError(ErrorKind.UNKNOWN, repr(error)))
        self._report(inventory)
        if self._desk.is_healthy != was_healthy:
            self._on_health()

    def _failed(self, error: ProviderError) -> None:
        if self._desk.is_healthy:
            self._log.warning("provider-unhealthy", provider=self._provider.name, error=str(error))
        self._desk.failed(error, now=self._world.clock.monotonic())
        self._metrics.calls.labels(self._provider.name, "poll", error.kind.value).inc()

    async def _look(self) -> Inventory:
        started_at = self._world.clock.monotonic()
        inventory = await self._provider.list()
        changed = self._world.book.merge(self._provider.name, inventory, started_at=started_at)
        self._on_changed(changed)
        if self._desk.answered(await self._provider.offerings()):
            self._on_stock()
        self._metrics.calls.labels(self._provider.name, "poll", "ok").inc()
        return inventory

    def _report(self, inventory: Inventory | None) -> None:
        ours = None
        if inventory is not None and inventory.complete:
            owns = self._world.identity.owns
            ours = sum(instance.is_living and owns(instance) for instance in inventory.instances)
            self._metrics.instances.labels(self._provider.name).set(ours)
        self._metrics.gpus.set(self._world.rules.max_external_gpus - self._world.gpus_left())
        event = self._desk.sample(instances=ours, now=self._world.clock.monotonic())
        if event is not None:
            self._record.say(event)
