"""A command changes a cluster only in a context that was named to it, or whose name says that it is there for this."""

import json
from pathlib import Path

import pytest

from overspill_kube.contexts import IN_CLUSTER, ContextRefused, context_of, require_context
from overspill_kube.errors import ConfigError
from overspill_kube.settings import KubeSettings


def settings(folder: Path, *, current: str = "production", context: str | None = None) -> KubeSettings:
    """Of a kubeconfig with two contexts."""
    path = folder / "kubeconfig"
    contexts = [{"name": name, "context": {"cluster": "c", "user": "u"}} for name in ("production", "kind-try")]
    config = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": contexts,
        "current-context": current,
    }
    path.write_text(json.dumps(config))
    return KubeSettings(kubeconfig=str(path), context=context)


def test_the_current_context_counts_unless_another_is_asked_for(tmp_path: Path) -> None:
    assert context_of(settings(tmp_path)) == "production"
    assert context_of(settings(tmp_path, context="kind-try")) == "kind-try"


def test_a_context_that_nobody_named_is_refused_with_what_to_type(tmp_path: Path) -> None:
    with pytest.raises(ContextRefused, match="--allow-context production") as refused:
        require_context(settings(tmp_path), ["staging"])
    assert refused.value.context == "production"


def test_named_contexts_and_those_made_for_this_pass(tmp_path: Path) -> None:
    assert require_context(settings(tmp_path), ["production"]) == "production"
    assert require_context(settings(tmp_path, current="kind-try"), []) == "kind-try"


def test_a_pods_own_cluster_must_be_named_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    with pytest.raises(ContextRefused, match=IN_CLUSTER):
        require_context(KubeSettings(), [])
    assert require_context(KubeSettings(), [IN_CLUSTER]) == IN_CLUSTER


@pytest.mark.parametrize("content", ["", "nonsense: [", '{"contexts": [], "clusters": [], "users": []}', "[]"])
def test_a_broken_kubeconfig_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(content)
    with pytest.raises(ConfigError, match=str(path)):
        require_context(KubeSettings(kubeconfig=str(path)), [])
