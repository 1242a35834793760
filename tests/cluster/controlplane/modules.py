"""Which real servers are built, and from what: the module files beside this one pin each of them.

Small module files, one each, because their dependencies disagree. What shares a suite shares a folder of the cache and is
built together; suites need nothing of each other. It knows nothing about building: see `build.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


class BuildError(RuntimeError):
    """A server cannot be built here; the message says what a person can do about it."""


@dataclass(frozen=True, kw_only=True)
class Module:
    """One folder with a go.mod, and the programs built from it (binary name → Go package)."""

    folder: Path
    pinned: str
    packages: dict[str, str]
    tags: tuple[str, ...] = ()

    @property
    def version(self) -> str:
        """The version that go.mod pins, the only place where it is written."""
        found = re.search(rf"^\s*{re.escape(self.pinned)} (v\S+)", self.text, re.MULTILINE)
        if found is None:
            raise BuildError(f"{self.folder / 'go.mod'} does not require {self.pinned}")
        return found[1]

    @property
    def go_needed(self) -> tuple[int, ...]:
        """The Go version that go.mod asks for."""
        found = re.search(r"^go (\S+)$", self.text, re.MULTILINE)
        if found is None:
            raise BuildError(f"{self.folder / 'go.mod'} has no go line")
        return numbers(found[1])

    @property
    def text(self) -> str:
        """The module file as it is."""
        return (self.folder / "go.mod").read_text()

    @property
    def ldflags(self) -> str:
        """Stripped, and with the version that a server tells its clients where a plain build would tell none."""
        major, minor, patch = numbers(self.version)
        if self.pinned == "k8s.io/kubernetes":
            base = "k8s.io/component-base/version"
            return (
                f"-s -w -X {base}.gitVersion={self.version} -X {base}.gitMajor={major} -X {base}.gitMinor={minor}"
                f" -X k8s.io/client-go/pkg/version.gitVersion={self.version}"
            )
        if self.pinned == "sigs.k8s.io/kwok":
            return f"-s -w -X sigs.k8s.io/kwok/pkg/consts.Version={self.version.removeprefix('v')}"
        if self.pinned == "github.com/prometheus/prometheus":  # its Go module calls release 3.16.0 v0.316.0
            return f"-s -w -X github.com/prometheus/common/version.Version={minor // 100}.{minor % 100}.{patch}"
        return "-s -w"


ETCD = Module(folder=HERE / "etcd", pinned="go.etcd.io/etcd/server/v3", packages={"etcd": "go.etcd.io/etcd/server/v3"})
KUBERNETES = Module(
    folder=HERE / "kubernetes",
    pinned="k8s.io/kubernetes",
    packages={
        name: f"k8s.io/kubernetes/cmd/{name}"
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
    },
)
KWOK = Module(folder=HERE / "kwok", pinned="sigs.k8s.io/kwok", packages={"kwok": "sigs.k8s.io/kwok/cmd/kwok"})
PROMETHEUS = Module(
    folder=HERE / "prometheus",
    pinned="github.com/prometheus/prometheus",
    packages={"prometheus": "github.com/prometheus/prometheus/cmd/prometheus"},
    tags=("remove_all_sd",),  # a third of the packages are clouds' service discoveries; targets here are a fixed list
)


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Modules whose programs share a folder of the cache; the last one's version names it."""

    name: str
    modules: tuple[Module, ...]
    cold_minutes: int  # on two cores with empty Go caches

    @property
    def version(self) -> str:
        """The version that people know it by."""
        return self.modules[-1].version

    @property
    def programs(self) -> list[str]:
        """Everything that can be built."""
        return [name for module in self.modules for name in module.packages]


CONTROL_PLANE = Suite(name="the real control plane", modules=(ETCD, KUBERNETES), cold_minutes=10)
NODES = Suite(name="KWOK", modules=(KWOK,), cold_minutes=2)
MONITORING = Suite(name="the real Prometheus", modules=(PROMETHEUS,), cold_minutes=4)


def numbers(version: str) -> tuple[int, ...]:
    """Major, minor and patch of a version, however it is written."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])
