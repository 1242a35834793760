"""The live copy of an operator's pauses that a service looks at before each effect.

Absent means not paused. Not known means hold still: `problem` says why, and the caller starts nothing new meanwhile.
"""

from collections.abc import Callable
from typing import Final, Never

from overspill_events.names import CONTROL_CONFIG_MAP
from overspill_kube.client import Client
from overspill_kube.informer import Informer
from overspill_kube.resources import CONFIG_MAPS
from overspill_kube.rules import Rule
from overspill_runtime.clock import Clock
from overspill_service.control import Pause, pause_of

RULE: Final[Rule] = CONFIG_MAPS.rule("list", "watch")  # of this one name, in the system namespace


class Control:
    """The pauses of one service; `run` keeps them. `on_change` is called when the ConfigMap changes."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        *,
        namespace: str,
        service: str,
        on_change: Callable[[], None] | None = None,
    ) -> None:
        self._clock, self._namespace, self._service = clock, namespace, service
        self._informer = Informer(
            client,
            CONFIG_MAPS,
            namespace=namespace,
            fields=f"metadata.name={CONTROL_CONFIG_MAP}",
            on_change=None if on_change is None else lambda _: on_change(),
        )

    async def run(self) -> Never:
        """Follow the ConfigMap until cancelled."""
        await self._informer.run()

    async def wait_known(self) -> None:
        """Return once it is known whether the service is paused."""
        await self._informer.wait_synced()

    @property
    def revision(self) -> int:
        """Grows with every change of the ConfigMap; that a pause expires does not show in it."""
        return self._informer.revision

    def problem(self) -> str | None:
        """Why it is not known whether the service is paused; None when it is."""
        if self._informer.is_synced:
            return None
        return f"configmap {CONTROL_CONFIG_MAP}: {self._informer.last_error or 'not read yet'}"

    def pause(self) -> Pause | None:
        """The pause that holds now. Only to be believed while there is no `problem`."""
        found = self._informer.get(self._namespace, CONTROL_CONFIG_MAP)
        return None if found is None else pause_of(found.data, self._service, now=self._clock.now())

    def why_paused(self) -> str | None:
        """The pause in words; None when the service is to work."""
        pause = self.pause()
        return None if pause is None else str(pause)
