"""Which cluster the tests would change: only one that was asked for and whose context may be changed."""

import json
from pathlib import Path

import pytest

from tests.support.cluster_choice import ChoiceError, existing_cluster


def kubeconfig(folder: Path, context: str) -> Path:
    """A kubeconfig whose current context has this name."""
    path = folder / "kubeconfig"
    path.write_text(
        json.dumps(
            {
                "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
                "users": [{"name": "u", "user": {}}],
                "contexts": [{"name": context, "context": {"cluster": "c", "user": "u"}}],
                "current-context": context,
            }
        )
    )
    return path


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OVERSPILL_TEST_CLUSTER", "OVERSPILL_TEST_CONTEXT", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)


def test_a_kubeconfig_alone_asks_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, "kind-x")))
    assert existing_cluster() is None


@pytest.mark.parametrize("context", ["kind-x", "overspill-test"])
def test_contexts_made_for_this_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, context: str) -> None:
    path = kubeconfig(tmp_path, context)
    monkeypatch.setenv("OVERSPILL_TEST_CLUSTER", "existing")
    monkeypatch.setenv("KUBECONFIG", str(path))
    assert existing_cluster() == path


def test_any_other_context_must_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = kubeconfig(tmp_path, "production")
    monkeypatch.setenv("OVERSPILL_TEST_CLUSTER", "existing")
    monkeypatch.setenv("KUBECONFIG", str(path))
    with pytest.raises(ChoiceError, match="OVERSPILL_TEST_CONTEXT=production"):
        existing_cluster()
    monkeypatch.setenv("OVERSPILL_TEST_CONTEXT", "staging")
    with pytest.raises(ChoiceError, match="production"):
        existing_cluster()
    monkeypatch.setenv("OVERSPILL_TEST_CONTEXT", "staging,production")
    assert existing_cluster() == path


@pytest.mark.parametrize(("choice", "said"), [("mine", "accepted is existing"), ("existing", "KUBECONFIG")])
def test_what_cannot_be_given_is_said(monkeypatch: pytest.MonkeyPatch, choice: str, said: str) -> None:
    monkeypatch.setenv("OVERSPILL_TEST_CLUSTER", choice)
    with pytest.raises(ChoiceError, match=said):
        existing_cluster()
