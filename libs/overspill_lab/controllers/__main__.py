"""`python -m overspill_lab.controllers`: see `--help`."""

import argparse
import asyncio
from typing import Any

from overspill_lab.controllers.budgets import Budgets
from overspill_lab.controllers.cluster import Cluster
from overspill_lab.controllers.deployments import Deployments
from overspill_lab.controllers.evictions import LostPods, TaintEvictions
from overspill_lab.controllers.garbage import Garbage
from overspill_lab.controllers.jobs import Jobs
from overspill_lab.controllers.node_health import NodeHealth
from overspill_lab.controllers.replica_sets import ReplicaSets
from overspill_lab.controllers.workqueue import WorkQueue
from overspill_lab.part import Part, run_part


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--node-grace-seconds", type=float, default=50.0, help="a node silent for longer is Unknown")
    parser.add_argument(
        "--lost-pod-seconds", type=float, default=40.0, help="pods of a node that is gone are deleted after this"
    )


async def _body(part: Part) -> None:
    cluster = Cluster(part.client)
    garbage = Garbage(part.client, cluster.shared())
    health = NodeHealth(cluster, grace_s=part.arguments.node_grace_seconds)
    lost = LostPods(cluster, quarantine_s=part.arguments.lost_pod_seconds)
    jobs = Jobs(cluster)
    queues: list[WorkQueue[Any]] = [
        Deployments(cluster).queue,
        ReplicaSets(cluster).queue,
        jobs.queue,
        jobs.orphans,
        Budgets(cluster).queue,
        TaintEvictions(cluster).queue,
        health.queue,
        garbage.queue,
    ]
    async with asyncio.TaskGroup() as group:
        for informer in cluster.informers():
            group.create_task(informer.run())
        for informer in cluster.informers():
            await informer.wait_synced()
        for queue in queues:
            group.create_task(queue.run())
        for loop in (garbage, health, lost):
            group.create_task(loop.run())
        part.ready({})


if __name__ == "__main__":
    run_part("controllers", _body, arguments=_arguments)
