"""Effective requests: kube-scheduler's arithmetic."""

from decimal import Decimal

import pytest

from overspill_capacity.requests import effective_requests
from tests.unit.overspill_capacity.cluster import GPU, container, pod


def asked(**spec):
    return effective_requests(pod(spec=spec))


def test_containers_are_summed_and_a_limit_alone_is_a_request():
    assert asked(containers=[container(1), container(2, cpu="500m")]) == {"cpu": Decimal("1.5"), GPU: 3}


def test_the_largest_ordinary_init_container_counts_not_their_sum():
    requests = asked(containers=[container(1, cpu="1")], initContainers=[container(4, cpu="2"), container(2, cpu="3")])
    assert requests == {"cpu": Decimal(3), GPU: 4}


def test_an_init_container_alone_holds_its_gpu_for_the_pods_life():
    assert asked(containers=[container(0)], initContainers=[container(1)])[GPU] == 1


def test_sidecars_run_beside_containers_and_beside_later_init_containers_only():
    sidecar = container(1, cpu="1", restartPolicy="Always")
    init = container(3, cpu="5")
    assert asked(containers=[container(1)], initContainers=[sidecar, init]) == {"cpu": Decimal(6), GPU: 4}
    assert asked(containers=[container(1)], initContainers=[init, sidecar]) == {"cpu": Decimal(5), GPU: 3}
    assert asked(containers=[container(4)], initContainers=[sidecar]) == {"cpu": Decimal(2), GPU: 5}


def test_overhead_is_added():
    assert asked(containers=[container(1)], overhead={"cpu": "250m"})["cpu"] == Decimal("1.25")


def test_pod_level_resources_replace_cpu_and_memory_but_never_gpus():
    level = {"requests": {"cpu": "10", "memory": "1Gi", GPU: "7"}, "limits": {"hugepages-2Mi": "4Mi"}}
    requests = asked(containers=[container(2)], resources=level, overhead={"cpu": "1"})
    assert requests == {"cpu": Decimal(11), "memory": Decimal(2**30), GPU: 2, "hugepages-2Mi": Decimal(4 * 2**20)}


@pytest.mark.parametrize(("condition", "cpu"), [(None, 8), ("Deferred", 8), ("Infeasible", 4)])
def test_a_resize_holds_the_largest_of_wanted_allocated_and_actual(condition, cpu):
    statuses = [{"name": "c", "allocatedResources": {"cpu": "2"}, "resources": {"requests": {"cpu": "4"}}}]
    conditions = [{"type": "PodResizePending", "status": "True", "reason": condition}] if condition else []
    resized = pod(
        spec={"containers": [container(1, cpu="8")]}, status={"containerStatuses": statuses, "conditions": conditions}
    )
    assert effective_requests(resized) == {"cpu": Decimal(cpu), GPU: 1}


def test_what_is_no_quantity_is_named():
    with pytest.raises(ValueError, match="quantity 'lots'"):
        asked(containers=[container("lots")])
