"""The lab's scheduler serving a real API server: the contract's scheduling tests once more, with kube-scheduler out.

The lab's parts are clients of the Kubernetes API and nothing else; this holds them to it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.cluster.controlplane.start import control_plane
from tests.contract.kubernetes.client import Endpoint, endpoint_of
from tests.contract.kubernetes.conftest import api, lab_part, namespace, nodes
from tests.contract.kubernetes.test_preemption import *  # noqa: F403 - the very same tests
from tests.contract.kubernetes.test_scheduler import *  # noqa: F403 - the very same tests

__all__ = ["api", "namespace", "nodes"]
pytestmark = pytest.mark.cluster


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def endpoint() -> AsyncIterator[Endpoint]:
    """A real API server with its controllers, and the lab's scheduler."""
    async with control_plane(scheduler=False) as plane:
        with lab_part(str(plane.folder), "scheduler", "--kubeconfig", str(plane.kubeconfig)):
            yield endpoint_of(plane.kubeconfig)
