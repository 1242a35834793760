"""Where `overspill demo` is played: on the lab's own cluster, or on one that runs already and was named to it."""

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from overspill_cli.output import UsageError
from overspill_demo.ground.preparing import GroundError
from overspill_demo.performance import Options, perform
from overspill_demo.story import StoryError
from overspill_kube.contexts import ContextRefused, require_context
from overspill_kube.errors import ConfigError, KubeError, KubeUnavailable
from overspill_kube.settings import KubeSettings
from overspill_lab.lab import Cluster
from overspill_lab.programs import LabError


async def staged(options: Options, *, kubeconfig: Path | None, allowed: Sequence[str], kwok: Path | None) -> int:
    """Play on the cluster that the arguments name; the exit code.

    Raises UsageError for what the caller can put right, LabError when the story could not be played to its end, and
    what `perform` raises for scenario and settings.
    """
    try:
        cluster = cluster_of(kubeconfig=kubeconfig, allowed=allowed, kwok=kwok)
        return await perform(msgspec.structs.replace(options, cluster=cluster))
    except (GroundError, ConfigError, ContextRefused) as error:
        raise UsageError(str(error)) from error
    except (StoryError, KubeUnavailable, KubeError) as error:
        raise LabError(str(error)) from error


def cluster_of(*, kubeconfig: Path | None, allowed: Sequence[str], kwok: Path | None) -> Cluster | None:
    """The cluster that the arguments name, or None for the lab's own.

    Raises UsageError for arguments that contradict each other or name files that are not there, ConfigError for a
    kubeconfig that cannot be used, and ContextRefused.
    """
    if kubeconfig is None:
        if kwok is not None or allowed:
            raise UsageError(
                "--kwok and --allow-context go with --kubeconfig FILE; the lab's own cluster needs neither"
            )
        return None
    if kwok is not None and not (kwok.is_file() and os.access(kwok, os.X_OK)):
        raise UsageError(f"--kwok {kwok}: no executable file; `make cluster-binaries` prints where it has built one")
    require_context(KubeSettings(kubeconfig=str(kubeconfig)), allowed)
    return Cluster(kubeconfig=kubeconfig.absolute(), kwok=kwok.absolute() if kwok else None)
