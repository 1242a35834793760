"""`python -m overspill_service.credentials`: a password for each NATS user, made once, where they are needed.

Run by a Job at installation, so that no password stands in a manifest. A Secret that exists is kept: running it again
changes nothing, and who wants a new password deletes the Secret, runs it again and restarts both ends.
"""

import secrets
import sys
from typing import Final

from overspill_bus.permissions import User, users
from overspill_events.names import PART_OF, PART_OF_LABEL
from overspill_kube.client import Client
from overspill_kube.grants import Grant, within
from overspill_kube.resources import SECRETS
from overspill_service import installing

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


async def ensure(client: Client, namespace: str) -> installing.Made:
    """Create the Secrets that are missing. Raises KubeUnavailable, KubeError."""
    # A letter first: nats-server reads values of its environment as it reads its configuration, where digits are
    # a number.
    bodies = (secret_body(user, f"p{secrets.token_hex(24)}", namespace) for user in users())
    return await installing.create_missing(client, SECRETS, bodies, namespace)


def main() -> int:
    """Make them in the settings' namespace. The exit codes are those of `installing.run`."""
    return installing.run(SERVICE, lambda client, settings: ensure(client, settings.namespace))


if __name__ == "__main__":
    sys.exit(main())
