"""Builds the real servers once, so that our stand-ins can be judged by the originals.

etcd, the Kubernetes servers, kubectl, KWOK and Prometheus are plain Go programs whose modules anybody can build; no
container and no image is needed. The binaries live outside the tree, in a folder named after everything that shaped them,
so a change of version or flag builds anew and nothing else does. The suites are built apart: none needs another to succeed.

This module knows how to build; what is built is in `modules.py`, how it is started in `start.py`. It uses the standard
library alone, because it also runs as a plain command: `make cluster-binaries`.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.controlplane.modules import (
    CONTROL_PLANE,
    MONITORING,
    NODES,
    BuildError,
    Module,
    Suite,
    numbers,
)

PROGRESS_EVERY_S = 15.0
IN_ASSETS = ("etcd", "kube-apiserver", "kubectl")
BASE_FLAGS = ("-mod=readonly", "-trimpath", "-v")


@dataclass(frozen=True, kw_only=True)
class Binaries:
    """Paths of the control plane's programs, and of its client."""

    etcd: Path
    apiserver: Path
    controllers: Path
    scheduler: Path
    kubectl: Path


def kwok() -> Path:
    """Path of kwok, which plays the kubelets of nodes, built first when it is not in the cache. Raises BuildError."""
    return _built(NODES, NODES.programs) / "kwok"


def prometheus() -> Path:
    """Path of the Prometheus server, built first when it is not in the cache. Raises BuildError."""
    return _built(MONITORING, MONITORING.programs) / "prometheus"


def binaries() -> Binaries:
    """Paths of the control plane's programs, built first when they are not in the cache.

    `KUBEBUILDER_ASSETS`, when set, names a folder whose etcd, kube-apiserver and kubectl are used instead of ours (the habit
    of Go projects); the others are always ours. Raises BuildError.
    """
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    wanted = _ours(CONTROL_PLANE)
    paths = {name: _asset(Path(assets).absolute(), name) for name in IN_ASSETS} if assets else {}
    folder = _built(CONTROL_PLANE, wanted)
    paths |= {name: folder / name for name in wanted}
    return Binaries(
        etcd=paths["etcd"],
        apiserver=paths["kube-apiserver"],
        controllers=paths["kube-controller-manager"],
        scheduler=paths["kube-scheduler"],
        kubectl=paths["kubectl"],
    )


def is_built(suite: Suite) -> bool:
    """Whether asking for the suite's programs would build nothing."""
    return (cache_root() / _key(suite, _ours(suite))).is_dir()


def _ours(suite: Suite) -> list[str]:
    """The suite's programs that we build: all but those that KUBEBUILDER_ASSETS brings."""
    brought = IN_ASSETS if os.environ.get("KUBEBUILDER_ASSETS") else ()
    return [name for name in suite.programs if name not in brought]


def _asset(folder: Path, name: str) -> Path:
    path = folder / name
    if not os.access(path, os.X_OK):
        raise BuildError(f"KUBEBUILDER_ASSETS={folder} holds no executable {name}; unset it to build our own")
    return path


def _built(suite: Suite, wanted: list[str]) -> Path:
    """The cache folder that holds the wanted programs; builds under a lock when it is not there."""
    folder = cache_root() / _key(suite, wanted)
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_name(f"{folder.name}.lock"), suite):
        if not folder.is_dir():  # another process may have built it while we waited
            _build(folder, suite, wanted)
    return folder


def cache_root() -> Path:
    """Where binaries are kept: $OVERSPILL_CLUSTER_CACHE, else the user's cache folder."""
    if own := os.environ.get("OVERSPILL_CLUSTER_CACHE"):
        return Path(own).absolute()  # programs are started in folders of their own
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "overspill" / "controlplane"


def _key(suite: Suite, wanted: list[str]) -> str:
    """A name that changes with anything that changes a binary: pins, sums, flags, platform, the set of programs."""
    digest = hashlib.sha256()
    parts = [platform.system(), platform.machine(), *BASE_FLAGS, *wanted]
    for module in suite.modules:
        parts += [module.text, (module.folder / "go.sum").read_text(), module.ldflags, *module.tags]
    for part in parts:
        digest.update(part.encode() + b"\0")
    return f"{suite.version}-{digest.hexdigest()[:12]}"


@contextlib.contextmanager
def _locked(path: Path, suite: Suite) -> Iterator[None]:
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"another process is building {suite.name}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(folder: Path, suite: Suite, wanted: list[str]) -> None:
    go = _go(suite)
    _say(
        f"building {', '.join(wanted)} ({suite.version}) once into {folder}; about {suite.cold_minutes} minutes on two"
        " cores with empty Go caches, under a minute with full ones"
    )
    begun = time.monotonic()
    for leftover in folder.parent.glob(f".{folder.name}-*"):  # of a build that was killed: we hold its lock now
        shutil.rmtree(leftover)
    # Beside its final place, so that the rename is atomic and a broken build is never found by a later call.
    half = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        for module in suite.modules:
            _build_module(go, module, [name for name in module.packages if name in wanted], half)
        half.chmod(0o755)
        half.rename(folder)
    finally:
        shutil.rmtree(half, ignore_errors=True)
    _say(f"built in {_spent(begun)}")


def _go(suite: Suite) -> str:
    """The go command. Raises BuildError when it is missing or too old."""
    needed = max(module.go_needed for module in suite.modules)
    wanted = ".".join(map(str, needed))
    go = shutil.which("go")
    if go is None:
        raise BuildError(f"{suite.name} is built with Go {wanted} or newer, and no `go` is on the PATH")
    # Asked inside the module: a Go that may fetch newer toolchains answers with the one that it will use there.
    asked = subprocess.run(
        [go, "env", "GOVERSION"], cwd=suite.modules[-1].folder, capture_output=True, text=True, check=False
    )
    if asked.returncode != 0 or numbers(asked.stdout) < needed:
        seen = asked.stdout.strip() or asked.stderr.strip()
        raise BuildError(f"{suite.name} is built with Go {wanted} or newer; `{go}` is {seen}")
    return go


def _build_module(go: str, module: Module, names: list[str], target: Path) -> None:
    if not names:
        return
    begun = said = time.monotonic()
    packages = [module.packages[name] for name in names]
    # A single package whose folder is not named after its program (etcd's is `v3`) needs the file named in full.
    out = str(target / names[0]) if len(names) == 1 else f"{target}{os.sep}"
    tags = ["-tags", ",".join(module.tags)] if module.tags else []
    command = [go, "build", *BASE_FLAGS, *tags, "-ldflags", module.ldflags, "-o", out, *packages]
    environment = {**os.environ, "CGO_ENABLED": "0"}
    complaints: list[str] = []
    compiled = 0
    with subprocess.Popen(command, cwd=module.folder, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if re.fullmatch(r"[\w.~/-]+\n", line):  # -v prints one package path per line
                compiled += 1
            else:
                complaints.append(line)
            if time.monotonic() - said >= PROGRESS_EVERY_S:
                said = time.monotonic()
                _say(f"{module.pinned}: {compiled} packages compiled, {_spent(begun)}")
    if process.returncode != 0:
        raise BuildError(f"go build failed in {module.folder}:\n{''.join(complaints[-30:])}")
    _say(f"{module.pinned} {module.version}: {', '.join(names)} in {_spent(begun)}")


def _spent(begun: float) -> str:
    minutes, seconds = divmod(round(time.monotonic() - begun), 60)
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"


def _say(text: str) -> None:
    print(f"real servers: {text}", file=sys.stderr, flush=True)


def main() -> int:
    """Build when needed and print where each program is; one suite's failure does not stop the others."""
    failed = False
    for build in (_control_plane, lambda: [kwok()], lambda: [prometheus()]):
        try:
            print(*build(), sep="\n")
        except BuildError as error:
            failed = True
            _say(str(error))
    return 2 if failed else 0


def _control_plane() -> list[Path]:
    built = binaries()
    return [built.etcd, built.apiserver, built.controllers, built.scheduler, built.kubectl]


if __name__ == "__main__":
    sys.exit(main())
