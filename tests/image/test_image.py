"""The image for real: built by a Docker engine, and every program of it started as narrowly as deploy/ starts it.

    make test-image

needs an engine that `docker` reaches. Without any network a service must start, say what it cannot reach, live on, and
end with 0 when asked to.
"""

from __future__ import annotations

import json
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.tilt.evaluation import ROOT
from tests.image.base import base_image
from tests.image.engine import Container, build, container, docker

SERVICES = sorted(folder.name.removeprefix("overspill_") for folder in (ROOT / "services").glob("overspill_*"))
LEADERS = [name for name in SERVICES if name != "recorder"]  # they stand for election at the API server
PORT = 8080
WITHIN_S = 60.0

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: nobody, cluster: {server: "https://127.0.0.1:6443"}}]
users: [{name: nobody, user: {token: nothing}}]
contexts: [{name: nobody, context: {cluster: nobody, user: nobody}}]
current-context: nobody
"""
ASK = """
import urllib.error, urllib.request
try:
    with urllib.request.urlopen("http://127.0.0.1:{port}/{path}", timeout=5) as answer:
        print(answer.status, answer.read().decode())
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
except OSError as error:
    print(0, '"' + type(error).__name__ + '"')
"""

pytestmark = [pytest.mark.image, pytest.mark.timeout(1800)]


@pytest.fixture(scope="session")
def images() -> dict[str, str]:
    """Both stages that are run, by name. The engine's cache makes a second build quick."""
    arguments = base_image()
    tags = {target: f"overspill-test-{target}" for target in ("dev", "production")}
    for target, tag in tags.items():
        build(ROOT, tag=tag, target=target, arguments=arguments)
    return tags


@pytest.fixture(scope="session")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The way to an API server that is not there."""
    path = tmp_path_factory.mktemp("kubeconfig") / "kubeconfig"
    path.write_text(KUBECONFIG)
    path.chmod(0o644)
    path.parent.chmod(0o755)
    return path


def options(service: str, kubeconfig: Path) -> list[str]:
    environment = {
        "OVERSPILL_LISTEN": f"0.0.0.0:{PORT}",
        "OVERSPILL_LOG_FORMAT": "json",
        "OVERSPILL_KUBECONFIG": "/etc/overspill/kubeconfig",
        "OVERSPILL_BRIDGE_PROVIDERS": "fake=http://127.0.0.1:8090?token=local",
    }
    given = [word for name, value in environment.items() for word in ("--env", f"{name}={value}")]
    given += ["--volume", f"{kubeconfig}:/etc/overspill/kubeconfig:ro"]
    if service == "recorder":
        given += ["--tmpfs", "/var/lib/overspill:uid=10001,gid=10001"]
    return given


@pytest.fixture(params=SERVICES)
def running(
    request: pytest.FixtureRequest, images: dict[str, str], kubeconfig: Path
) -> Iterator[tuple[str, Container]]:
    service = request.param
    with container(images["production"], f"overspill_{service}", options=options(service, kubeconfig)) as one:
        yield service, one


def ask(one: Container, path: str, *, port: int = PORT) -> tuple[int, Any]:
    status, _, body = one.python(ASK.format(port=port, path=path)).partition(" ")
    return int(status), json.loads(body)


def until(one: Container, path: str, wanted: Any, *, port: int = PORT) -> Any:
    """Ask until the answer is what is wanted; the body. A container that has ended ends the waiting."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        assert one.state["Running"], one.log
        status, body = ask(one, path, port=port)
        if wanted(status, body):
            return body
        assert time.monotonic() < deadline, f"/{path}: {status} {body}\n{one.log}"
        time.sleep(0.5)


def test_a_service_starts_says_what_it_misses_lives_on_and_ends_when_asked(running: tuple[str, Container]) -> None:
    service, one = running
    until(one, "livez", lambda status, _: status == 200)
    missing = until(one, "readyz", lambda status, body: status == 503 and "not connected" in body["checks"]["bus"])
    assert "nats://127.0.0.1:4222" in missing["checks"]["bus"]
    if service in LEADERS:
        told = until(one, "readyz", lambda _, body: "127.0.0.1:6443" in json.dumps(body["checks"].get("lease", "")))
        assert told["ok"] is False
    status, _ = ask(one, "livez")
    assert status == 200, "what is missing outside is no reason to be started anew"
    assert json.loads(one.python("import json, os; print(json.dumps([os.getuid(), os.getgid()]))")) == [10001, 10001]
    assert one.stop(seconds=30) == 0, one.log
    assert "listening" in one.log
    assert "4222" in one.log


def test_the_root_cannot_be_written_and_need_not_be(running: tuple[str, Container]) -> None:
    _, one = running
    until(one, "livez", lambda status, _: status == 200)
    written = one.python(
        "import pathlib\n"
        "for place in ('/opt/overspill/x', '/etc/x', '/x'):\n"
        "    try:\n        pathlib.Path(place).write_text('x'); print(place)\n    except OSError: pass"
    )
    assert written == ""


def test_the_fake_cloud_serves_from_the_same_image(images: dict[str, str]) -> None:
    arguments = ("overspill_lab.cloud", "--host=0.0.0.0", "--port=8090", "--token=local")
    with container(images["production"], *arguments) as one:
        until(one, "v1/offerings", lambda status, _: status == 401, port=8090)
        assert one.stop(seconds=30) == 0, one.log


def test_a_setting_that_is_missing_ends_with_2_and_its_name(images: dict[str, str]) -> None:
    with container(images["production"], "overspill_bridge") as one:
        assert one.wait() == 2
        assert "OVERSPILL_BRIDGE_PROVIDERS" in one.log


def test_without_a_way_to_an_api_server_it_ends_and_says_what_to_set(images: dict[str, str]) -> None:
    with container(images["production"], "overspill_sampler") as one:
        assert one.wait() == 2
        assert "OVERSPILL_KUBECONFIG" in one.log


@pytest.mark.parametrize("job", ["credentials", "crds"])
def test_a_job_of_the_installation_reaches_for_the_api_server(
    images: dict[str, str], kubeconfig: Path, job: str
) -> None:
    """With all that it needs from the image; without any network that is as far as it comes."""
    with container(images["production"], f"overspill_service.{job}", options=options(job, kubeconfig)) as one:
        assert one.wait() == 1
        assert f"overspill {job}: " in one.log
        assert "127.0.0.1:6443" in one.log


def test_the_image_says_what_it_is(images: dict[str, str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for tag in images.values():
        config = json.loads(docker("image", "inspect", "--format", "{{json .Config}}", tag))
        assert config["User"] == "10001:10001"
        assert config["Entrypoint"] == ["/opt/overspill/bin/python", "-m"]
    labels = json.loads(docker("image", "inspect", "--format", "{{json .Config}}", images["production"]))["Labels"]
    assert labels["org.opencontainers.image.version"] == project["version"]


def test_what_builds_stayed_behind_and_what_is_installed_is_the_projects(images: dict[str, str]) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    with container(images["production"], "overspill_lab.cloud", "--port=8090") as one:
        until(one, "v1/offerings", lambda status, _: status == 401, port=8090)
        found = one.python(
            "import importlib.metadata as m, importlib.util as u, pathlib\n"
            "print(m.version('overspill'), u.find_spec('hatchling'), u.find_spec('pip'), pathlib.Path('/build').exists())"
        )
        assert found.split() == [version, "None", "None", "False"]


def test_the_dev_stage_runs_the_sources_that_tilt_synchronises(images: dict[str, str]) -> None:
    # As overlays/local has it: the root may be written, by the same user.
    with container(images["dev"], "overspill_lab.cloud", "--port=8090", options=["--read-only=false"]) as one:
        until(one, "v1/offerings", lambda status, _: status == 401, port=8090)
        found = one.python(
            "import overspill_lab, overspill_bridge, pathlib\n"
            "print(overspill_lab.__file__, overspill_bridge.__file__)\n"
            "pathlib.Path(overspill_lab.__file__).write_text('changed = True')\n"
            "pathlib.Path('/app/.restart-proc').write_text('now')"
        )
        assert found.split() == ["/app/libs/overspill_lab/__init__.py", "/app/services/overspill_bridge/__init__.py"]
        assert one.python("import overspill_lab; print(overspill_lab.changed)") == "True"
