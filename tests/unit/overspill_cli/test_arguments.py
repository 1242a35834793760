"""What the command line offers to choose from."""

from overspill_cli.__main__ import Service, Victim
from overspill_cli.operators import Pausable
from overspill_events.names import SERVICES
from overspill_service.control import PAUSABLE


def test_services_can_be_chosen_by_their_names_and_by_no_others():
    assert {one.value for one in Service} == set(SERVICES)
    assert {one.value for one in Victim} == {*SERVICES, "nats"}
    assert {one.value for one in Pausable} == set(PAUSABLE)
