"""What decides where a pod may run: tolerations, node affinity, priority classes.

Node affinity is modelled because Overspill has to judge it; pod affinity and topology spread are kept raw, so that a
judge knows that they are there and can answer "unknown".
"""

from msgspec import field

from overspill_objects.meta import ObjectMeta
from overspill_objects.view import RawObject, Time, View


class Taint(View, frozen=True, kw_only=True):
    """A node's refusal. `effect` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    value: str = ""
    effect: str = ""
    time_added: Time | None = None


class Toleration(View, frozen=True, kw_only=True):
    """A pod's acceptance of taints. An empty `effect` matches all effects, an empty `key` with Exists all taints."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class NodeSelectorRequirement(View, frozen=True, kw_only=True):
    """One expression about a node: In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeSelectorTerm(View, frozen=True, kw_only=True):
    """All of its expressions must hold; a term without any selects no node."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(View, frozen=True, kw_only=True):
    """One of its terms must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(View, frozen=True, kw_only=True):
    """Adds `weight` (1 to 100) to the score of a node that its term selects."""

    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(View, frozen=True, kw_only=True):
    """Which nodes a pod must have, and which it would like."""

    required: NodeSelector | None = field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[PreferredSchedulingTerm, ...] = field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(View, frozen=True, kw_only=True):
    """Affinity of a pod; the parts about other pods are only known to be present."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: RawObject | None = None
    pod_anti_affinity: RawObject | None = None


class PriorityClass(View, frozen=True, kw_only=True):
    """Names a priority. `preemption_policy` is PreemptLowerPriority (default) or Never."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"
