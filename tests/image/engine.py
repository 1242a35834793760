"""A Docker engine as its command line shows it. It must not know what is in the images."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

QUICK_S = 60.0
BUILD_S = 1500.0


class EngineError(Exception):
    """The engine is not there, or said no; the message ends with its own words."""


def docker(*arguments: str, seconds: float = QUICK_S, environment: Mapping[str, str] | None = None) -> str:
    """Run one command to its end and return its output. Raises EngineError."""
    try:
        done = subprocess.run(
            ["docker", *arguments],
            capture_output=True, text=True, timeout=seconds, check=False, env={**os.environ, **(environment or {})},
        )  # fmt: skip
    except FileNotFoundError as error:
        raise EngineError("there is no docker command on the PATH") from error
    except subprocess.TimeoutExpired as error:
        raise EngineError(f"docker {arguments[0]} took more than {seconds:g} s") from error
    if done.returncode != 0:
        raise EngineError(f"docker {' '.join(arguments)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout.strip()


def has_image(name: str) -> bool:
    """Whether the engine holds an image of that name."""
    return bool(docker("image", "ls", "--quiet", name))


def build(folder: Path, *, tag: str, target: str, arguments: Mapping[str, str]) -> None:
    """Build a stage. Steps that fetch use the host's network, since an engine may run without a bridge."""
    given = [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]
    docker(
        "build", "--network", "host", "--target", target, "--tag", tag, *given, str(folder),
        seconds=BUILD_S, environment={} if _has_buildkit() else {"DOCKER_BUILDKIT": "0"},
    )  # fmt: skip


def _has_buildkit() -> bool:
    try:
        docker("buildx", "version")
    except EngineError:
        return False
    return True


class Container:
    """One that runs, known by its id."""

    def __init__(self, identity: str) -> None:
        self.id = identity

    def python(self, code: str) -> str:
        """What `code` prints, run by the container's own Python inside of it."""
        return docker("exec", self.id, "/opt/overspill/bin/python", "-c", code)

    @property
    def state(self) -> dict[str, Any]:
        found = json.loads(docker("container", "inspect", "--format", "{{json .State}}", self.id))
        assert isinstance(found, dict)
        return found

    @property
    def log(self) -> str:
        """Both of its streams."""
        done = subprocess.run(
            ["docker", "logs", self.id], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
        )
        return done.stdout

    def stop(self, *, seconds: int) -> int:
        """SIGTERM, and after so many seconds SIGKILL; returns the exit code."""
        docker("stop", "--time", str(seconds), self.id, seconds=seconds + QUICK_S)
        return int(self.state["ExitCode"])

    def wait(self) -> int:
        """Wait for its own end; returns the exit code."""
        return int(docker("wait", self.id))


@contextmanager
def container(image: str, *command: str, options: Sequence[str] = ()) -> Iterator[Container]:
    """As narrow as a pod of deploy/: no network, a root that cannot be written, no capability. Removed with the block."""
    narrow = (
        "--network", "none", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
    )  # fmt: skip
    name = f"overspill-test-{uuid.uuid4().hex[:12]}"
    identity = docker("run", "--detach", "--name", name, *narrow, *options, image, *command)
    try:
        yield Container(identity)
    finally:
        docker("rm", "--force", "--volumes", identity)
