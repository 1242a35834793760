"""What a lab's processes see of the person's environment."""

import pytest

from overspill_lab.lab import clean_environment, free_ports


def test_nothing_that_could_steer_a_service_gets_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """A KUBECONFIG in the shell must not make the lab's services work on a real cluster."""
    monkeypatch.setenv("KUBECONFIG", "/real/cluster")
    monkeypatch.setenv("OVERSPILL_NATS_URL", "nats://real")
    monkeypatch.setenv("SOMETHING_ELSE", "kept")
    environment = clean_environment()
    assert environment["SOMETHING_ELSE"] == "kept"
    assert not [name for name in environment if name.startswith(("OVERSPILL_", "KUBECONFIG"))]


def test_ports_are_all_different() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
