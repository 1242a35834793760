"""The settings in deploy/ are settings that the services have, and load: a misspelt one fails here, not in a cluster."""

from __future__ import annotations

import importlib
import re
from typing import Any

import pytest

from overspill_bus.__main__ import Settings as TopologySettings
from overspill_bus.permissions import users
from overspill_runtime.settings import CommonSettings, load
from overspill_service.credentials import SECRET_PREFIX
from tests.support.manifests import DEPLOY, INSTALL, SERVICES, documents, name_of, pod_specs, settings

PROVIDERS = "fake=http://fake-provider:8090?token=t"  # a Secret's in a cluster
OVERLAYS = {"production": (), "local": ("common.env", "{service}.env")}


def settings_type(service: str) -> type[CommonSettings]:
    if service == "topology":
        return TopologySettings
    return importlib.import_module(f"overspill_{service}.settings").Settings


def environment(service: str, overlay: str) -> dict[str, str]:
    """What the container of a service gets to see."""
    common = {} if service == "topology" else settings(DEPLOY / "base/settings.env")
    found = common | settings(DEPLOY / "base" / service / "settings.env")
    for pattern in OVERLAYS[overlay]:
        path = DEPLOY / "overlays" / overlay / pattern.format(service=service)
        changed = settings(path) if path.exists() else {}
        if path.name != "common.env" or service != "topology":
            found |= changed
    return found | {"OVERSPILL_NATS_URL": f"nats://{service}:p@nats:4222", "OVERSPILL_BRIDGE_PROVIDERS": PROVIDERS}


@pytest.mark.parametrize("overlay", sorted(OVERLAYS))
@pytest.mark.parametrize("service", [*SERVICES, "topology"])
def test_they_load(service: str, overlay: str) -> None:
    env = environment(service, overlay)
    loaded = load(settings_type(service), service=service, env=env)
    named = {name.removeprefix(f"OVERSPILL_{service.upper()}_").removeprefix("OVERSPILL_").lower() for name in env}
    foreign = {"bridge_providers"} if service != "bridge" else set()
    assert named - foreign <= set(type(loaded).__struct_fields__)


@pytest.mark.parametrize("service", SERVICES)
def test_services_leave_the_streams_alone(service: str) -> None:
    assert (
        load(settings_type(service), service=service, env=environment(service, "production")).nats_makes_streams
        is False
    )


def test_overlays_change_only_settings_of_their_own_service() -> None:
    for path in (DEPLOY / "overlays").rglob("*.env"):
        prefix = "OVERSPILL_" if path.stem == "common" else f"OVERSPILL_{path.stem.upper()}_"
        assert all(name.startswith(prefix) for name in settings(path)), path


def rendered_maps() -> dict[str, dict[str, str]]:
    return {one["metadata"]["name"]: one["data"] for one in documents(INSTALL) if one["kind"] == "ConfigMap"}


@pytest.mark.parametrize("service", [*SERVICES, "topology"])
def test_install_yaml_has_these_settings(service: str) -> None:
    found = [data for name, data in rendered_maps().items() if re.fullmatch(rf"overspill-{service}-settings-\w+", name)]
    assert found == [settings(DEPLOY / "base" / service / "settings.env")]


def test_what_pods_refer_to_is_there() -> None:
    maps = rendered_maps()
    secrets = {f"{SECRET_PREFIX}{user.name}" for user in users()} | {"overspill-bridge-providers"}
    for document, spec in pod_specs(documents(INSTALL)):
        for container in spec["containers"]:
            used = references(container, spec)
            assert used["configMap"] <= set(maps), name_of(document)
            assert used["secret"] <= secrets, name_of(document)


def references(container: dict[str, Any], spec: dict[str, Any]) -> dict[str, set[str]]:
    values = [one.get("valueFrom", {}).get("secretKeyRef", {}).get("name") for one in container.get("env", ())]
    maps = [one["configMapRef"]["name"] for one in container.get("envFrom", ())]
    volumes = [volume["configMap"]["name"] for volume in spec["volumes"] if "configMap" in volume]
    return {"secret": {name for name in values if name}, "configMap": {*maps, *volumes}}


@pytest.mark.parametrize("service", SERVICES)
def test_a_pod_is_handed_its_own_password_only(service: str) -> None:
    spec = next(
        spec
        for document, spec in pod_specs(documents(INSTALL))
        if document["metadata"]["name"] == f"overspill-{service}"
    )
    nats = {name for name in references(spec["containers"][0], spec)["secret"] if name.startswith("overspill-nats-")}
    assert nats == {f"overspill-nats-{service}"}
    url = next(one["value"] for one in spec["containers"][0]["env"] if one["name"] == "OVERSPILL_NATS_URL")
    assert url == f"nats://{service}:$(NATS_PASSWORD)@nats:4222"
