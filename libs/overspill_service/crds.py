"""`python -m overspill_service.crds`: the kinds of Kueue that the admitter reads, defined where they are missing.

Run by a Job at installation and not applied as manifests: a cluster with Kueue has its own definitions, which applying
ours would overwrite. One that exists is kept, whoever made it. This module must not know what the kinds mean.
"""

import sys
from pathlib import Path
from typing import Any, Final

import yaml

from overspill_kube.client import Client
from overspill_kube.grants import Grant, everywhere
from overspill_kube.resources import CUSTOM_RESOURCE_DEFINITIONS
from overspill_service import installing

SERVICE: Final = "crds"
FILE: Final = Path(__file__).with_name("kueue.yaml")
# Which of all definitions the Job may create is said by the policy `overspill-crds` of deploy/: a create has no name
# that RBAC could look at.
GRANTS: Final[tuple[Grant, ...]] = everywhere(CUSTOM_RESOURCE_DEFINITIONS.rule("create"))


def definitions() -> list[dict[str, Any]]:
    """The CustomResourceDefinitions of the queue objects."""
    return list(yaml.safe_load_all(FILE.read_text()))


async def ensure(client: Client) -> installing.Made:
    """Create what is missing; the kinds are served a moment later. Raises KubeUnavailable, KubeError."""
    return await installing.create_missing(client, CUSTOM_RESOURCE_DEFINITIONS, definitions())


def main() -> int:
    """Define them. The exit codes are those of `installing.run`."""
    return installing.run(SERVICE, lambda client, _: ensure(client))


if __name__ == "__main__":
    sys.exit(main())
