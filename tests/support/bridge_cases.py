"""Pods, instances and sightings for tests of the bridge's pure parts."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from overspill_bridge.book import Identity
from overspill_bridge.policy import Case, Rules
from overspill_bridge.sighting import Sighting
from overspill_events.catalog import Offering
from overspill_events.names import SPILLABLE_LABEL
from overspill_objects.core import Pod
from overspill_providers.protocol import Instance, InstanceState

NOW = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)
MOMENT = 1000.0
UID = "11111111-2222-3333-4444-555555555555"
IDENTITY = Identity(cluster_uid="cluster", node="overspill")
RULES = Rules(
    resource="nvidia.com/gpu", max_external_gpus=16, list_lag=30.0, start_deadline=600.0, terminate_again=60.0
)


def pod(
    *, uid: str = UID, gpus: object = "1", meta: Any = None, spec: Any = None, status: Any = None, **container: Any
) -> Pod:
    """An opted-in pod on the virtual node; parts are given as the API writes them."""
    body = {
        "metadata": {
            "name": "web",
            "namespace": "prod",
            "uid": uid,
            "resourceVersion": "7",
            "labels": {SPILLABLE_LABEL: "true"},
        }
        | (meta or {}),
        "spec": {
            "nodeName": "overspill",
            "containers": [
                {"name": "main", "image": "image", "resources": {"limits": {"nvidia.com/gpu": gpus}}} | container
            ],
        }
        | (spec or {}),
        "status": {"phase": "Pending"} | (status or {}),
    }
    return msgspec.convert(body, Pod)


def instance(state: InstanceState = InstanceState.RUNNING, *, number: int = 1, uid: str = UID, **more: Any) -> Instance:
    fields = {
        "id": f"i-{number}",
        "key": f"overspill-{uid}",
        "state": state,
        "offering": "a100",
        "gpus": 1,
        "price_per_hour": 2.0,
        "created_at": NOW - timedelta(minutes=1),
        "tags": IDENTITY.tags(pod_uid=uid, pod_name="prod/web"),
    }
    return Instance(**(fields | more))


def sighting(state: InstanceState = InstanceState.RUNNING, *, number: int = 1, **more: Any) -> Sighting:
    own = {name: more.pop(name) for name in tuple(more) if name in Sighting.__struct_fields__}
    fields = {
        "provider": "fake",
        "noted_at": MOMENT - 60,
        "listed": True,
        "instance": instance(state, number=number, **more),
    }
    return Sighting(**(fields | own))


def case(one: Pod | None = None, *sightings: Sighting, **more: Any) -> Case:
    fields = {"pod": one or pod(), "now": NOW, "moment": MOMENT, "sightings": sightings, "knows_enough": True}
    return Case(**(fields | more))


def offering(name: str = "a100", **more: Any) -> Offering:
    fields = {"id": name, "gpu_type": "a100", "gpus": 1, "region": "north", "price_per_hour": 2.0, "stock": 5}
    return Offering(**(fields | more))
