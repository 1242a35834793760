"""A bridge that observes: what it would do is told, and nothing is bought, ended or written."""

import asyncio

from overspill_events.catalog import InstanceCreated, OrphanFound, SpillDeferred, TerminationDeferred
from overspill_events.reasons import InstanceEnd, SpillReason
from tests.support.bridge_place import bridge_place, said, tags_for


async def test_observing_decides_and_spends_nothing(tmp_path):
    async with bridge_place(tmp_path) as place:
        orphan = await place.cloud.rent("x", tags=await tags_for(place, "uid-x", name="default/gone"))
        await place.start_bridge(mode="observe")
        await place.pod("seen")

        async def told():
            return [e for e in await said(place, SpillDeferred) if e.reason is SpillReason.OBSERVING]

        (event,) = await place.eventually(told)
        assert "a100-1x-north at $1.89/h" in event.detail

        async def found():
            return await said(place, OrphanFound)

        await place.eventually(found)

        async def withheld():
            return await said(place, TerminationDeferred)

        (ending,) = await place.eventually(withheld)
        assert (ending.instance, ending.end, ending.detail) == (orphan, InstanceEnd.ORPHAN, "observing")
        await asyncio.sleep(1.0)
        assert len(await withheld()) == 1
        assert [i["id"] for i in await place.cloud.living()] == [orphan]
        assert (await place.get("seen")).status.container_statuses == ()
        assert await said(place, InstanceCreated) == []
