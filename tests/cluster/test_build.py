"""The builder says what it needs, and builds nothing twice. No Go is needed here: a stand-in writes the programs."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

import pytest

from tests.cluster.controlplane import build, modules
from tests.cluster.controlplane.build import binaries, kwok, prometheus
from tests.cluster.controlplane.modules import BuildError

FAKE_GO = """#!/bin/sh
if [ "$1" = env ]; then echo "${FAKE_GO_VERSION:-go1.26.8}"; exit 0; fi
echo "$@" >> "$FAKE_GO_LOG"
if [ -n "$FAKE_GO_FAILS" ]; then echo "some/package"; echo "undefined: thing" >&2; exit 1; fi
while [ $# -gt 0 ]; do
  case "$1" in
    -o) out="$2"; shift;;
    k8s.io/kubernetes/cmd/*) touch "$out${1##*/}";;
    go.etcd.io/*|github.com/prometheus/*|sigs.k8s.io/kwok/*) touch "$out";;
  esac
  shift
done
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Go that takes no time; the file lists its builds."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "go").write_text(FAKE_GO)
    (bin_folder / "go").chmod(0o755)
    log = tmp_path / "builds"
    monkeypatch.setenv("PATH", f"{bin_folder}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setenv("FAKE_GO_LOG", str(log))
    monkeypatch.setenv("OVERSPILL_CLUSTER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return log


def _builds(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


def test_what_is_built_is_found_again(calls: Path, tmp_path: Path) -> None:
    first = binaries()
    assert len(_builds(calls)) == 2  # one for each module
    assert binaries() == first
    assert len(_builds(calls)) == 2
    for program in (first.etcd, first.apiserver, first.controllers, first.scheduler, first.kubectl):
        assert program.is_file()
        assert program.is_relative_to(tmp_path / "cache")


def test_two_calls_at_once_build_once(calls: Path) -> None:
    threads = [threading.Thread(target=binaries) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(_builds(calls)) == 2


def test_a_failed_build_leaves_nothing_and_shows_the_complaint(
    calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_GO_FAILS", "1")
    with pytest.raises(BuildError, match="undefined: thing"):
        binaries()
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".lock"]

    monkeypatch.delenv("FAKE_GO_FAILS")
    assert binaries().etcd.is_file()


def test_the_leftovers_of_a_killed_build_are_swept(calls: Path, tmp_path: Path) -> None:
    folder = binaries().etcd.parent
    leftover = folder.parent / f".{folder.name}-killed"
    folder.rename(leftover)
    binaries()
    assert folder.is_dir()
    assert not leftover.exists()


def test_another_flag_is_another_folder(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = binaries()
    monkeypatch.setattr(build, "BASE_FLAGS", (*build.BASE_FLAGS, "-race"))
    assert binaries().etcd.parent != first.etcd.parent


def test_a_missing_go_is_named_with_the_version_needed(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(BuildError, match=r"Go 1\.26\.0 or newer, and no `go` is on the PATH"):
        binaries()


def test_an_old_go_is_named_with_the_version_needed(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_GO_VERSION", "go1.19.8")
    with pytest.raises(BuildError, match=r"Go 1\.26\.0 or newer; .* is go1\.19\.8"):
        binaries()


def test_no_go_is_needed_for_what_is_built(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = binaries()
    monkeypatch.setenv("PATH", "/nowhere")
    assert binaries() == first


def test_assets_of_other_go_projects_are_used(calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assets = tmp_path / "assets"
    assets.mkdir()
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    with pytest.raises(BuildError, match="holds no executable etcd"):
        binaries()

    for name in ("etcd", "kube-apiserver", "kubectl"):
        (assets / name).write_text("")
        (assets / name).chmod(0o755)
    found = binaries()
    assert (found.etcd, found.apiserver, found.kubectl) == (
        assets / "etcd",
        assets / "kube-apiserver",
        assets / "kubectl",
    )
    assert found.scheduler.is_relative_to(tmp_path / "cache")
    (only,) = _builds(calls)
    assert "kube-apiserver" not in only
    assert "kubectl" not in only


def test_the_modules_pin_one_version_of_kubernetes() -> None:
    assert modules.KUBERNETES.version.startswith("v1.")
    staging = modules.KUBERNETES.version.replace("v1.", "v0.")
    replaced = [line.split(" => ")[1] for line in modules.KUBERNETES.text.splitlines() if " => " in line]
    assert len(replaced) > 20
    assert {line.split()[1] for line in replaced} == {staging}


def test_prometheus_and_the_control_plane_are_built_apart(
    calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_GO_FAILS", "1")
    with pytest.raises(BuildError, match="undefined: thing"):
        prometheus()
    monkeypatch.delenv("FAKE_GO_FAILS")
    assert binaries().etcd.is_file()
    assert len(_builds(calls)) == 3

    built = prometheus()
    assert built.is_file()
    assert built.parent != binaries().etcd.parent
    assert prometheus() == built
    (only,) = _builds(calls)[3:]
    assert "-tags remove_all_sd" in only
    assert "Version=3." in only


def test_kwok_is_built_apart_and_says_its_version(calls: Path) -> None:
    built = kwok()
    assert built.is_file()
    assert kwok() == built
    (only,) = _builds(calls)
    assert f"Version={modules.KWOK.version.removeprefix('v')}" in only


def test_the_control_plane_does_not_ask_for_the_go_that_prometheus_needs(
    calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_GO_VERSION", "go1.26.0")
    with pytest.raises(BuildError, match=r"the real Prometheus is built with Go 1\.26\.7 or newer"):
        prometheus()
    assert binaries().etcd.is_file()


def test_the_documents_name_the_go_that_builds_everything() -> None:
    suites = (modules.CONTROL_PLANE, modules.NODES, modules.MONITORING)
    needed = ".".join(map(str, max(module.go_needed for suite in suites for module in suite.modules)))
    root = Path(__file__).parents[2]
    for document in ("README.md", "docs/real-cluster.md"):
        named = re.findall(r"needs Go ([\d.]+) or newer", (root / document).read_text())
        assert named == [needed], document


def test_the_command_prints_what_it_has_and_fails_for_what_it_has_not(
    calls: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_GO_VERSION", "go1.26.0")
    assert build.main() == 2
    said = capsys.readouterr()
    assert [Path(line).name for line in said.out.splitlines()] == [
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kubectl",
        "kwok",
    ]
    assert "Prometheus is built with" in said.err

    monkeypatch.delenv("FAKE_GO_VERSION")
    assert build.main() == 0
    assert Path(capsys.readouterr().out.splitlines()[-1]).name == "prometheus"
