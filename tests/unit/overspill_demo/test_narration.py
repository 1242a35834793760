"""The turns of a story are told once each, and the live table fits the smallest terminal."""

import io

from rich.console import Console

from overspill_demo.narration import Narration
from overspill_demo.progress import table
from overspill_demo.provider import Totals
from overspill_demo.recollection import Figures, Recollection
from overspill_demo.scenario import built_in, load
from tests.unit.overspill_demo.test_recollection import EVICTED, READY, node, pod

NOW = Figures(gate_open=True, free_gpus=3, home=2, virtual=1, pending=0, gated=0)


def test_every_turn_is_told_once_with_its_figures():
    scenario = load(built_in())
    seen, narration = Recollection(), Narration(scenario)
    assert list(narration.news(seen, NOW)) == []
    seen.see_node(node(is_open=True))
    seen.see_pod(pod("1", "v", READY), [])
    opened, overflowed = narration.news(seen, NOW)
    assert opened.startswith("the gate opens: 3 GPUs free at home")
    assert overflowed == "the first overflow: i/a-1 is on the virtual node"
    seen.see_pod(pod("2", "v", READY), [])
    for job in scenario.research[1:]:
        seen.see_pod(pod("j", "h", app=job.name, phase="Succeeded"), [])
    assert list(narration.news(seen, NOW)) == []
    seen.see_pod(pod("j", "h", app=scenario.research[0].name, phase="Succeeded"), [])
    assert list(narration.news(seen, NOW)) == ["research has ended: 400 jobs are done"]
    seen.see_node(node(is_open=False))
    seen.see_pod(pod("h", "h", READY, EVICTED), [])
    (closed,) = narration.news(seen, NOW)
    assert closed.startswith("the gate closes: 3 GPUs free")
    for uid in "12":
        seen.see_pod(pod(uid, "v", READY, EVICTED), [])
    (returned,) = narration.news(seen, NOW)
    assert returned.startswith("the first return: i/a-1 is evicted")
    seen.see_node(node(is_open=True))
    assert len(list(narration.news(seen, NOW))) == 1
    assert list(narration.news(seen, NOW)) == []


def test_the_table_fits_80_columns_whole():
    """Also with the longest figures; nothing is cut or broken into two lines."""
    most = Figures(gate_open=None, free_gpus=12345, home=12345, virtual=12345, pending=12345, gated=0)
    console = Console(width=80, file=io.StringIO())
    with console.capture() as shown:
        console.print(table(most, Totals(living=12345, cost=12345.67), elapsed=1234))
    lines = shown.get().splitlines()
    assert max(len(line.rstrip()) for line in lines) <= 80
    assert "none yet" in lines[-1]
    assert "$12,345.67" in lines[-1]
    assert "…" not in shown.get()
    assert [line for line in lines if "instances" in line and "external" in line and "cost" in line]
