"""Declaring events: mistakes are found when the module is imported."""

import pytest

from overspill_events.catalog import CATALOG, Event, event, kebab


def test_a_type_is_declared_once():
    with pytest.raises(ValueError, match=r"dev\.overspill\.decider\.gate-opened\.v1 is declared twice"):

        @event("decider", "node")
        class GateOpened(Event, frozen=True, kw_only=True):
            node: str


def test_a_key_must_be_a_field():
    with pytest.raises(ValueError, match="colour"):

        @event("decider", "colour")
        class GatePainted(Event, frozen=True, kw_only=True):
            node: str

    assert "dev.overspill.decider.gate-painted.v1" not in CATALOG


def test_a_breaking_change_is_a_new_type_beside_the_old():
    @event("decider", "node", version=2)
    class GateClosed(Event, frozen=True, kw_only=True):
        node: str

    try:
        assert GateClosed.spec.type == "dev.overspill.decider.gate-closed.v2"
        assert CATALOG["dev.overspill.decider.gate-closed.v1"] is not GateClosed
    finally:
        del CATALOG[GateClosed.spec.type]


def test_names_become_kebab_case():
    assert kebab("GateOpened") == "gate-opened"
