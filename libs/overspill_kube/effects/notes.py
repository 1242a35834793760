"""Kubernetes Events: notes for the people who run `kubectl describe`. Not the record; losing one loses nothing.

They are limited (`note_limits`), as a loop would repeat them in every cycle.
"""

from typing import Final, Literal

from overspill_kube.client import Client
from overspill_kube.errors import KubeError, KubeUnavailable
from overspill_kube.note_limits import NoteLimits
from overspill_kube.outcomes import Done
from overspill_kube.resources import EVENTS
from overspill_objects.meta import ObjectReference

RULES: Final = (EVENTS.rule("create"),)

_LONGEST_MESSAGE: Final = 1024  # the API server's limit
# A server that is slow with notes (a webhook about them, an etcd of their own) must not make slow what they are about.
_SECONDS: Final = 1.0


async def record_event(
    client: Client,
    involved: ObjectReference,
    *,
    reason: str,
    message: str,
    component: str,
    type: Literal["Normal", "Warning"] = "Normal",  # noqa: A002  the field's own name
    limits: NoteLimits | None = None,
) -> bool:
    """Leave a note beside an object (cluster-wide ones: in namespace default). `reason` is one CamelCase word.

    `limits`: of notes that have a budget of their own; absent: the process' one. Returns whether it was written: not
    when the same was said lately, when there are too many, or when the server refuses, cannot be reached or has not
    answered within a second. No exception for any of these, because nothing may depend on a note.
    """
    limits = client.note_limits if limits is None else limits  # one that has counted nothing yet is falsy
    if not limits.allow((involved.uid, reason, message), client.clock.monotonic()):
        return False
    namespace = involved.namespace or "default"
    now = client.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    body = {
        "metadata": {"generateName": f"{involved.name[:200]}.", "namespace": namespace},
        "involvedObject": {
            "apiVersion": involved.api_version,
            "kind": involved.kind,
            "namespace": involved.namespace,
            "name": involved.name,
            "uid": involved.uid,
        },
        "reason": reason,
        "message": message[:_LONGEST_MESSAGE],
        "type": type,
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "source": {"component": component},
        "reportingComponent": component,
    }
    try:
        return isinstance(await client.create(EVENTS, body, namespace, seconds=_SECONDS), Done)
    except (KubeUnavailable, KubeError):
        return False
