"""The kubelets' shell: registers nodes, renews leases, does for each pod what `life` says when it is due."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import structlog

from overspill_kube.client import Client, PatchKind
from overspill_kube.errors import KubeError, KubeUnavailable
from overspill_kube.informer import Change, ChangeKind, Informer
from overspill_kube.outcomes import AlreadyExists, Done, NotFound
from overspill_kube.resources import LEASES, NODES, PODS
from overspill_lab.kubelets.life import Action, Pace, Step, ended_status, next_step, running_status
from overspill_lab.kubelets.machines import LEASE_NAMESPACE, Machine, lease_object, node_object, node_status
from overspill_lab.stamps import micro_stamp
from overspill_objects.core import Node, Pod
from overspill_objects.meta import condition_of

WRITES_AT_ONCE: Final = 16
RETRY_AFTER_S: Final = 1.0
BOUND: Final = "spec.nodeName!="  # pods that have a node


class Kubelets:
    """The kubelets of all machines of a nodes file. `run` it."""

    def __init__(self, client: Client, machines: Sequence[Machine], *, pace: Pace, renew_every_s: float) -> None:
        self._client = client
        self._machines = {machine.name: machine for machine in machines}
        self._address = {name: f"192.168.{at // 250}.{at % 250 + 1}" for at, name in enumerate(self._machines)}
        self._pace = pace
        self._renew_every_s = renew_every_s
        self._pods = Informer(client, PODS, fields=BOUND, on_change=self._on_pod)
        self._nodes = Informer(client, NODES, on_change=self._on_node)
        self._due: dict[str, tuple[Step, asyncio.TimerHandle]] = {}  # by pod uid
        self._slots = asyncio.Semaphore(WRITES_AT_ONCE)
        self._group: asyncio.TaskGroup
        self._log = structlog.get_logger()

    async def run(self, registered: asyncio.Event) -> None:
        """Play the kubelets until cancelled; sets the event when all nodes are registered."""
        try:
            async with asyncio.TaskGroup() as self._group:
                async with asyncio.TaskGroup() as registering:
                    for machine in self._machines.values():
                        registering.create_task(self._register(machine))
                registered.set()
                for informer in (self._nodes, self._pods):
                    self._group.create_task(informer.run())
                self._group.create_task(self._renew_leases())
        finally:
            for _, timer in self._due.values():
                timer.cancel()

    async def _register(self, machine: Machine) -> None:
        async with self._slots:
            while True:
                try:
                    await self._try_register(machine)
                except (KubeUnavailable, KubeError) as error:
                    self._log.warning("not-registered", node=machine.name, error=str(error))
                    await asyncio.sleep(RETRY_AFTER_S)
                else:
                    return

    async def _try_register(self, machine: Machine) -> None:
        outcome = await self._client.create(NODES, node_object(machine, now=self._client.clock.now()))
        if isinstance(outcome, AlreadyExists):
            outcome = await self._post_status(machine)
        if not isinstance(outcome, Done):
            raise KubeError(f"node {machine.name}: {outcome}", status=0)
        await self._put_lease(machine, owner_uid=outcome.object.metadata.uid)

    async def _post_status(self, machine: Machine) -> Any:
        status = node_status(machine, now=self._client.clock.now())
        return await self._client.patch(
            NODES, machine.name, {"status": status}, kind=PatchKind.STRATEGIC, subresource="status"
        )

    async def _put_lease(self, machine: Machine, *, owner_uid: str) -> None:
        lease = lease_object(machine, owner_uid=owner_uid, now=self._client.clock.now())
        if isinstance(await self._client.create(LEASES, lease), AlreadyExists):
            await self._client.patch(LEASES, machine.name, lease, kind=PatchKind.MERGE, namespace=LEASE_NAMESPACE)

    async def _renew_leases(self) -> None:
        """One lease after the other, spread evenly over the interval."""
        while True:
            for machine in self._machines.values():
                await asyncio.sleep(self._renew_every_s / len(self._machines))
                if self._nodes.get("", machine.name) is None:
                    continue  # its node was deleted: like a kubelet, it does not register again until it restarts
                try:
                    await self._renew(machine)
                except (KubeUnavailable, KubeError) as error:
                    self._log.warning("lease-not-renewed", node=machine.name, error=str(error))

    async def _renew(self, machine: Machine) -> None:
        renewal = {"spec": {"renewTime": micro_stamp(self._client.clock.now())}}
        outcome = await self._client.patch(
            LEASES, machine.name, renewal, kind=PatchKind.MERGE, namespace=LEASE_NAMESPACE
        )
        node = self._nodes.get("", machine.name)
        if isinstance(outcome, NotFound) and node is not None:
            await self._put_lease(machine, owner_uid=node.metadata.uid)

    def _on_node(self, change: Change[Node]) -> None:
        """A node that is said not to be ready says that it is."""
        machine = self._machines.get(change.object.metadata.name)
        if machine is None or change.kind is ChangeKind.DELETED:
            return
        ready = condition_of(change.object.status.conditions, "Ready")
        if ready is None or ready.status != "True":
            self._group.create_task(self._recover(machine))

    async def _recover(self, machine: Machine) -> None:
        try:
            await self._post_status(machine)
        except (KubeUnavailable, KubeError) as error:
            self._log.warning("node-status-not-written", node=machine.name, error=str(error))

    def _on_pod(self, change: Change[Pod]) -> None:
        pod = change.object
        if pod.spec.node_name not in self._machines:
            return
        if change.kind is ChangeKind.DELETED:
            self._appoint(pod, None)
        else:
            self._appoint(pod, next_step(pod, pace=self._pace, now=self._client.clock.now()))

    def _appoint(self, pod: Pod, step: Step | None) -> None:
        """Put the pod's next step on the clock; an earlier appointment for the same action stands."""
        uid = pod.metadata.uid
        known = self._due.get(uid)
        if known is not None:
            if step is not None and known[0].action is step.action and known[0].due <= step.due:
                return
            known[1].cancel()
            del self._due[uid]
        if step is not None:
            seconds = max(0.0, (step.due - self._client.clock.now()).total_seconds())
            self._due[uid] = (step, asyncio.get_running_loop().call_later(seconds, self._begin, pod, step))

    def _begin(self, pod: Pod, step: Step) -> None:
        del self._due[pod.metadata.uid]
        self._group.create_task(self._carry_out(pod, step))

    async def _carry_out(self, stale: Pod, step: Step) -> None:
        pod = self._pods.get(stale.metadata.namespace, stale.metadata.name)
        if pod is None or pod.metadata.uid != stale.metadata.uid:
            return
        try:
            async with self._slots:
                await self._do(pod, step)
        except (KubeUnavailable, KubeError) as error:
            self._log.warning("pod-step-failed", pod=f"{pod.metadata.namespace}/{pod.metadata.name}", error=str(error))
            await asyncio.sleep(RETRY_AFTER_S)
            self._appoint(pod, step)

    async def _do(self, pod: Pod, step: Step) -> None:
        now = self._client.clock.now()
        match step.action:
            case Action.START | Action.RESTART:
                await self._tell(pod, running_status(pod, host_ip=self._address[pod.spec.node_name], now=now))
            case Action.END | Action.REFUSE:
                await self._tell(pod, ended_status(pod, exit_code=step.exit_code, message=step.message, now=now))
            case Action.REMOVE:
                if pod.status.phase == "Running":
                    await self._tell(pod, ended_status(pod, exit_code=step.exit_code, message="", now=now))
                await self._client.delete(
                    PODS, pod.metadata.name, pod.metadata.namespace, uid=pod.metadata.uid, grace_seconds=0
                )

    async def _tell(self, pod: Pod, status: dict[str, Any]) -> None:
        """Refusals need no answer: the pod is gone, replaced, or will be seen again as it is now."""
        outcome = await self._client.patch(
            PODS,
            pod.metadata.name,
            {"metadata": {"uid": pod.metadata.uid}, "status": status},
            kind=PatchKind.STRATEGIC,
            namespace=pod.metadata.namespace,
            subresource="status",
        )
        if not isinstance(outcome, Done):
            self._log.info("pod-status-refused", pod=pod.metadata.name, why=str(outcome))
