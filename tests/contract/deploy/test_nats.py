"""The NATS configuration in deploy/: generated users, a file that the real server takes, passwords from Secrets."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from overspill_bus.permissions import users, users_config
from overspill_service.credentials import PASSWORD_KEY, SECRET_PREFIX
from tests.support.manifests import DEPLOY, INSTALL, documents, pod_specs

NATS = DEPLOY / "base" / "nats"
SERVER = Path(sysconfig.get_path("scripts")) / "nats-server"


def test_users_are_generated() -> None:
    assert (NATS / "users.conf").read_text() == users_config(), (
        "python -m overspill_bus.permissions > deploy/base/nats/users.conf, then render deploy/install.yaml anew"
    )


def test_the_rendered_configuration_is_these_files() -> None:
    config = next(one["data"] for one in documents(INSTALL) if one["metadata"]["name"].startswith("nats-config-"))
    assert config == {name: (NATS / name).read_text() for name in ("nats.conf", "users.conf", "cluster.conf")}


def test_the_server_gets_every_password_from_its_secret() -> None:
    spec = next(spec for document, spec in pod_specs(documents(INSTALL)) if document["metadata"]["name"] == "nats")
    variables = {one["name"]: one["valueFrom"].get("secretKeyRef") for one in spec["containers"][0]["env"]}
    assert variables.pop("POD_NAME") is None
    assert variables == {
        user.password_variable: {"name": f"{SECRET_PREFIX}{user.name}", "key": PASSWORD_KEY} for user in users()
    }


@pytest.mark.parametrize(
    "cluster", [NATS / "cluster.conf", DEPLOY / "components/nats-ha/cluster.conf"], ids=["one", "three"]
)
def test_the_real_server_takes_it(tmp_path: Path, cluster: Path) -> None:
    for path in (NATS / "nats.conf", NATS / "users.conf", cluster):
        shutil.copy(path, tmp_path / path.name)
    environment = {user.password_variable: "p0123" for user in users()} | {"POD_NAME": "nats-0"}
    judged = subprocess.run(
        [SERVER, "-t", "-c", tmp_path / "nats.conf"], env=environment, capture_output=True, text=True, check=False
    )
    assert judged.returncode == 0, judged.stderr
