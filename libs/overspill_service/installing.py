"""What the Jobs of an installation do alike: make what is missing, keep what exists, say which was which, and end.

Each Job is a program with an account of its own, which may create objects of one kind and not even read one. This
module must not know any of them.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from overspill_events.names import FIELD_MANAGER_PREFIX
from overspill_kube.client import Client, connect
from overspill_kube.errors import ConfigError, KubeError, KubeUnavailable
from overspill_kube.outcomes import AlreadyExists, Done
from overspill_kube.resources import Resource
from overspill_kube.settings import KubeSettings
from overspill_runtime.settings import PREFIX, CommonSettings, SettingsError, load

Made: TypeAlias = dict[str, bool]  # name of an object → whether it was made; False: it was there
Work: TypeAlias = Callable[[Client, CommonSettings], Awaitable[Made]]


async def create_missing(
    client: Client, resource: Resource[Any], bodies: Iterable[Mapping[str, Any]], namespace: str | None = None
) -> Made:
    """Create the objects that are missing. One that exists is left as it is, whatever is in it and whoever made it.

    Raises KubeUnavailable, and KubeError for a refusal and for an object that is being deleted: it will be missing.
    """
    made: Made = {}
    for body in bodies:
        name = body["metadata"]["name"]
        outcome = await client.create(resource, body, namespace)
        if not isinstance(outcome, Done | AlreadyExists):
            raise KubeError(f"{resource.kind} {name}: {outcome}", status=0)
        if isinstance(outcome, AlreadyExists) and outcome.is_leaving:
            raise KubeError(f"{resource.kind} {name}: {outcome.message}", status=0)
        made[name] = isinstance(outcome, Done)
    return made


def run(service: str, work: Work) -> int:
    """Do a Job's work with settings from the environment, and say on stderr what it made.

    Exit codes: 0 all there, 1 the API server refused or is away, 2 settings that cannot be used.
    """
    file = os.environ.get(f"{PREFIX}SETTINGS", "").strip()
    try:
        settings = load(CommonSettings, service=service, env=os.environ, file=Path(file) if file else None)
        made = asyncio.run(_connected(service, settings, work))
    except (SettingsError, ConfigError) as error:
        sys.stderr.write(f"overspill {service}: {error}\n")
        return 2
    except (KubeUnavailable, KubeError) as error:
        sys.stderr.write(f"overspill {service}: {error}\n")
        return 1
    for name, was_made in made.items():
        sys.stderr.write(f"{name}: {'made' if was_made else 'kept'}\n")
    return 0


async def _connected(service: str, settings: CommonSettings, work: Work) -> Made:
    kube = KubeSettings(
        kubeconfig=settings.kubeconfig, context=settings.context, user_agent=f"{FIELD_MANAGER_PREFIX}{service}"
    )
    async with connect(kube) as client:
        return await work(client, settings)
