"""`python -m overspill_service.credentials`: a password for each NATS user, made once, where they are needed.

Run by a Job at installation, so that no password stands in a manifest. A Secret that exists is kept: running it again
changes nothing, and who wants a new password deletes the Secret, runs it again and restarts both ends.
"""

import asyncio
import os
import secrets
import sys
from pathlib import Path
from typing import Final

from overspill_bus.permissions import User, users
from overspill_events.names import FIELD_MANAGER_PREFIX, PART_OF, PART_OF_LABEL
from overspill_kube.client import Client, connect
from overspill_kube.errors import ConfigError, KubeError, KubeUnavailable
from overspill_kube.grants import Grant, within
from overspill_kube.outcomes import AlreadyExists, Done
from overspill_kube.resources import SECRETS
from overspill_kube.settings import KubeSettings
from overspill_runtime.settings import PREFIX, CommonSettings, SettingsError, load

SERVICE: Final = "credentials"
SECRET_PREFIX: Final = "overspill-nats-"  # noqa: S105  + the user's name
PASSWORD_KEY: Final = "password"  # noqa: S105  of the Secret's data


def grants(namespace: str) -> tuple[Grant, ...]:
    """What the Job may do."""
    return within(namespace, SECRETS.rule("create"))


def secret_body(user: User, password: str, namespace: str) -> dict[str, object]:
    """The Secret of one user."""
    return {
        "metadata": {"name": f"{SECRET_PREFIX}{user.name}", "namespace": namespace, "labels": {PART_OF_LABEL: PART_OF}},
        "type": "Opaque",
        "stringData": {"username": user.name, PASSWORD_KEY: password},
    }


async def ensure(client: Client, namespace: str) -> dict[str, bool]:
    """Create the Secrets that are missing; user → whether it was. Raises KubeUnavailable, KubeError."""
    made: dict[str, bool] = {}
    for user in users():
        # A letter first: nats-server reads values of its environment as it reads its configuration, where digits are
        # a number.
        body = secret_body(user, f"p{secrets.token_hex(24)}", namespace)
        outcome = await client.create(SECRETS, body, namespace)
        if not isinstance(outcome, Done | AlreadyExists):
            raise KubeError(f"secret {namespace}/{SECRET_PREFIX}{user.name}: {outcome}", status=0)
        made[user.name] = isinstance(outcome, Done)
    return made


async def run(settings: CommonSettings) -> None:
    """Make them in the settings' namespace, and say which were there."""
    kube = KubeSettings(
        kubeconfig=settings.kubeconfig, context=settings.context, user_agent=f"{FIELD_MANAGER_PREFIX}{SERVICE}"
    )
    async with connect(kube) as client:
        for name, was_made in (await ensure(client, settings.namespace)).items():
            sys.stderr.write(f"secret {SECRET_PREFIX}{name}: {'made' if was_made else 'kept'}\n")


def main() -> int:
    """Exit codes: 0 all there, 1 the API server refused or is away, 2 settings that cannot be used."""
    file = os.environ.get(f"{PREFIX}SETTINGS", "").strip()
    try:
        settings = load(CommonSettings, service=SERVICE, env=os.environ, file=Path(file) if file else None)
        asyncio.run(run(settings))
    except (SettingsError, ConfigError) as error:
        sys.stderr.write(f"overspill {SERVICE}: {error}\n")
        return 2
    except (KubeUnavailable, KubeError) as error:
        sys.stderr.write(f"overspill {SERVICE}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
