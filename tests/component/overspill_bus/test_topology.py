"""The streams as declared, on a real server."""

import pytest

from overspill_bus import ApiError, Topology
from overspill_bus.topology import drift, stream_configs
from tests.component.overspill_bus.witness import opened


async def test_both_streams_are_made_as_declared(bus, witness):
    events, dlq = [(await witness.js.stream_info(name)).config for name in ("EVENTS", "DLQ")]
    assert (events.subjects, dlq.subjects) == (["overspill.v1.>"], ["overspill.dlq.>"])
    assert {events.storage, dlq.storage} == {"file"}
    assert (events.duplicate_window, events.max_age, dlq.max_age) == (600, 7 * 86_400, 30 * 86_400)
    assert (events.discard, events.retention) == ("old", "limits")


async def test_a_stream_that_differs_is_fitted_and_keeps_its_messages(server, bus, bus_of, witness):
    await bus.publish(opened())
    await bus.ensure_topology()
    async with bus_of(server, topology=Topology(max_age=3600, duplicate_window=30, max_bytes=5_000_000)) as other:
        await other.ensure_topology()
    config = (await witness.js.stream_info("EVENTS")).config
    assert (config.max_age, config.duplicate_window, config.max_bytes) == (3600, 30, 5_000_000)
    assert len(await witness.stored()) == 1


async def test_what_the_server_adds_is_no_drift(bus, witness):
    """Else every start would write the configuration anew."""
    for wanted in stream_configs(Topology()):
        assert drift(wanted, (await bus.stream_info(wanted["name"])).config) == {}


async def test_what_others_have_set_is_left_alone(server, bus, bus_of, witness):
    config = (await witness.js.stream_info("EVENTS")).config
    await witness.js.update_stream(config.evolve(max_msgs_per_subject=1000))
    async with bus_of(server, topology=Topology(max_age=3600)) as other:
        await other.ensure_topology()
    assert (await witness.js.stream_info("EVENTS")).config.max_msgs_per_subject == 1000


async def test_a_stream_of_somebody_else_on_our_subjects_is_an_error_that_says_so(server, bus_of, witness):
    await witness.js.add_stream(name="THEIRS", subjects=["overspill.v1.c.>"])
    async with bus_of(server) as bus:
        with pytest.raises(ApiError, match="overlap"):
            await bus.ensure_topology()


async def test_the_streams_state_can_be_asked(bus):
    assert (await bus.stream_info()).state.last_seq == 0
    await bus.publish(opened())
    assert (await bus.stream_info()).state.last_seq == 1
    with pytest.raises(ApiError) as caught:
        await bus.stream_info("NONE")
    assert caught.value.code == 404
