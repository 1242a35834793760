"""What the API server showed while the story was played: who was where, who was evicted, how the gate moved.

A pure fold over changes of pods and nodes. It must not know where they come from, nor Overspill's services.
"""

from collections.abc import Iterable

from msgspec import Struct

from overspill_capacity.room import HomeSnapshot
from overspill_demo.invariants import Eviction
from overspill_events import names
from overspill_objects.core import Node
from overspill_objects.meta import condition_of
from overspill_objects.pod import Pod

FINISHED = ("Succeeded", "Failed")


class Figures(Struct, frozen=True, kw_only=True):
    """Where everything is now."""

    gate_open: bool | None  # None: there is no virtual node yet
    free_gpus: int
    home: int
    virtual: int
    pending: int
    gated: int


class Recollection:
    """Remembers what cannot be seen at the end any more."""

    def __init__(self) -> None:
        self.owners: dict[str, str] = {}  # UID of every pod ever seen → the Deployment or Job it belongs to
        self.spilled: dict[str, str] = {}  # UID → namespace/name
        self.evictions: dict[str, Eviction] = {}
        self.vanished: dict[
            str, str
        ] = {}  # UID → namespace/name of spilled pods that failed, or went without an eviction
        self.finished: set[str] = set()  # Deployments and Jobs with a pod that succeeded
        self.openings = 0
        self.closings = 0
        self.home_max = 0
        self._gates: dict[str, bool] = {}  # virtual node → open?
        self._at_home: set[str] = set()

    @property
    def virtual_nodes(self) -> frozenset[str]:
        """Names of the virtual nodes seen."""
        return frozenset(self._gates)

    @property
    def gate_open(self) -> bool | None:
        """Whether any gate is open; None before there is a virtual node."""
        return any(self._gates.values()) if self._gates else None

    def see_node(self, node: Node) -> None:
        """Count a movement of the switch taint. A virtual node that was just created counts as closed before."""
        if node.metadata.labels.get(names.VIRTUAL_LABEL) != "true":
            return
        is_open = all(taint.key != names.SWITCH_TAINT for taint in node.spec.taints)
        was_open = self._gates.get(node.metadata.name, False)
        self._gates[node.metadata.name] = is_open
        self.openings += is_open and not was_open
        self.closings += was_open and not is_open

    def see_pod(self, pod: Pod, others: Iterable[Pod], *, gone: bool = False) -> None:
        """Remember where a pod is and whether it was evicted; `others` are all pods of that moment."""
        uid = pod.metadata.uid
        self.owners[uid] = pod.metadata.labels.get("app", "")
        if pod.spec.node_name in self._gates:
            self.spilled.setdefault(uid, f"{pod.metadata.namespace}/{pod.metadata.name}")
        elif pod.spec.node_name and not gone and pod.status.phase not in FINISHED:
            self._at_home.add(uid)
        if gone or pod.status.phase in FINISHED:
            self._at_home.discard(uid)
        if pod.status.phase == "Succeeded":
            self.finished.add(self.owners[uid])
        self.home_max = max(self.home_max, len(self._at_home))
        target = condition_of(pod.status.conditions, "DisruptionTarget")
        if (
            uid not in self.evictions
            and target
            and target.status == "True"
            and target.reason == "EvictionByEvictionAPI"
        ):
            self.evictions[uid] = _eviction(pod, others, spilled=uid in self.spilled)
        is_lost = pod.status.phase == "Failed" or (gone and pod.status.phase not in FINISHED)
        if is_lost and uid in self.spilled and uid not in self.evictions:
            self.vanished[uid] = self.spilled[uid]


def figures(recollection: Recollection, nodes: Iterable[Node], pods: Iterable[Pod]) -> Figures:
    """The numbers of the live table."""
    everything = tuple(pods)
    alive = [pod for pod in everything if pod.status.phase not in FINISHED]
    virtual = sum(pod.spec.node_name in recollection.virtual_nodes for pod in alive)
    bound = sum(bool(pod.spec.node_name) for pod in alive)
    gated = sum(bool(pod.spec.scheduling_gates) for pod in alive)
    home = HomeSnapshot.build(tuple(nodes), everything, resource=names.GPU_RESOURCE)
    return Figures(
        gate_open=recollection.gate_open,
        free_gpus=home.free_gpus,
        home=bound - virtual,
        virtual=virtual,
        pending=len(alive) - bound - gated,
        gated=gated,
    )


def is_ready(pod: Pod) -> bool:
    """Ready and not on its way out."""
    ready = condition_of(pod.status.conditions, "Ready")
    return ready is not None and ready.status == "True" and pod.metadata.deletion_timestamp is None


def _eviction(pod: Pod, others: Iterable[Pod], *, spilled: bool) -> Eviction:
    owner = (pod.metadata.namespace, pod.metadata.labels.get("app"))
    ready = sum(
        other.metadata.uid != pod.metadata.uid
        and (other.metadata.namespace, other.metadata.labels.get("app")) == owner
        and is_ready(other)
        for other in others
    )
    was_ready = condition_of(pod.status.conditions, "Ready")
    return Eviction(
        uid=pod.metadata.uid,
        pod=f"{pod.metadata.namespace}/{pod.metadata.name}",
        owner=owner[1] or "",
        spilled=spilled,
        was_ready=was_ready is not None and was_ready.status == "True",
        ready_others=ready,
    )
