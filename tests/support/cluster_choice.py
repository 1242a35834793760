"""Which real control plane the tests are given.

In this order: a cluster that runs already, when `OVERSPILL_TEST_CLUSTER=existing` asks for it (kind works; `KUBECONFIG`
names it, and its context must be called kind-* or overspill-* or be named in `OVERSPILL_TEST_CONTEXT`); otherwise one
started for the tests, from the programs of `KUBEBUILDER_ASSETS`, else from the cache, else built. Tests that need more than
a cluster's API (flags, an audit log, a program to kill) always start their own.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

from overspill_kube.contexts import ContextRefused, require_context
from overspill_kube.settings import KubeSettings
from tests.cluster.controlplane.start import control_plane

CHOICE = "OVERSPILL_TEST_CLUSTER"
CONTEXTS = "OVERSPILL_TEST_CONTEXT"


class ChoiceError(RuntimeError):
    """The environment asks for a cluster that cannot be given; the message says what to set."""


@contextlib.asynccontextmanager
async def real_cluster(*, scheduler: bool = True) -> AsyncIterator[Path]:
    """The kubeconfig of a real control plane, with controllers; a started one ends with the block.

    Raises ChoiceError, and what `control_plane` raises.
    """
    existing = existing_cluster()
    if existing is not None:
        yield existing
        return
    async with control_plane(scheduler=scheduler) as plane:
        yield plane.kubeconfig


def existing_cluster() -> Path | None:
    """The kubeconfig of the cluster that the environment asks for, or None when a control plane is to be started.

    Raises ChoiceError, also for a context that was not named.
    """
    choice = os.environ.get(CHOICE, "")
    if choice == "":
        return None
    if choice != "existing":
        raise ChoiceError(f"{CHOICE}={choice}: accepted is existing, or nothing to have a control plane started")
    kubeconfig = os.environ.get("KUBECONFIG", "")
    if not Path(kubeconfig).is_file():
        raise ChoiceError(f"{CHOICE}=existing needs KUBECONFIG to name one file; it is {kubeconfig!r}")
    allowed = [name for name in os.environ.get(CONTEXTS, "").split(",") if name]
    try:
        require_context(KubeSettings(kubeconfig=kubeconfig), allowed)
    except ContextRefused as refused:
        raise ChoiceError(
            f"the tests would change the cluster of context {refused.context!r}; set {CONTEXTS}={refused.context} if"
            " you mean it"
        ) from refused
    return Path(kubeconfig).absolute()
