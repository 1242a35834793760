"""`overspill demo` takes a cluster only when it is named, usable, and may be changed."""

import json
from pathlib import Path

import pytest

from overspill_cli.output import UsageError
from overspill_cli.staging import cluster_of, staged
from overspill_demo.performance import Options
from overspill_kube.contexts import ContextRefused


def kubeconfig(folder: Path, context: str) -> Path:
    """A kubeconfig of a server that is not there."""
    path = folder / "kubeconfig"
    config = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": context, "context": {"cluster": "c", "user": "u"}}],
        "current-context": context,
    }
    path.write_text(json.dumps(config))
    return path


def test_without_a_kubeconfig_the_lab_is_its_own_cluster(tmp_path: Path) -> None:
    assert cluster_of(kubeconfig=None, allowed=(), kwok=None) is None
    with pytest.raises(UsageError, match="go with --kubeconfig"):
        cluster_of(kubeconfig=None, allowed=(), kwok=tmp_path)
    with pytest.raises(UsageError, match="go with --kubeconfig"):
        cluster_of(kubeconfig=None, allowed=("x",), kwok=None)


def test_the_context_decides(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, "production")
    with pytest.raises(ContextRefused):
        cluster_of(kubeconfig=path, allowed=(), kwok=None)
    cluster = cluster_of(kubeconfig=path, allowed=("production",), kwok=None)
    assert cluster is not None
    assert (cluster.kubeconfig, cluster.kwok) == (path, None)


def test_kwok_must_be_a_program(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, "kind-try")
    binary = tmp_path / "kwok"
    with pytest.raises(UsageError, match="make cluster-binaries"):
        cluster_of(kubeconfig=path, allowed=(), kwok=binary)
    binary.write_text("")
    with pytest.raises(UsageError, match="no executable file"):
        cluster_of(kubeconfig=path, allowed=(), kwok=binary)
    binary.chmod(0o755)
    cluster = cluster_of(kubeconfig=path, allowed=(), kwok=binary)
    assert cluster is not None
    assert cluster.kwok == binary


async def test_a_refusal_is_the_callers_to_put_right(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--allow-context production"):
        await staged(Options(), kubeconfig=kubeconfig(tmp_path, "production"), allowed=(), kwok=None)
    with pytest.raises(UsageError, match="no such file"):
        await staged(Options(), kubeconfig=tmp_path / "none", allowed=(), kwok=None)
