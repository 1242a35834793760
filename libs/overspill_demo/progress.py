"""Shows a performance while it goes on: a live table on a terminal, a line at times without one. Always on stderr."""

from collections.abc import Callable
from typing import Final, Self

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table

from overspill_demo.provider import Totals
from overspill_demo.recollection import Figures

LINE_EVERY_S: Final = 5.0
NOTES_SHOWN: Final = 8


class Progress:
    """Context manager; `show` may be called as often as figures change."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._started = clock()
        self._notes: list[str] = []
        self._last_line = -LINE_EVERY_S
        self._console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
        self._live = Live(console=self._console, refresh_per_second=4) if self._console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._started

    def note(self, text: str) -> None:
        """Something happened."""
        line = f"{self.elapsed:6.1f} s  {text}"
        self._notes.append(line)
        if self._live is None:
            self._console.print(line)

    def show(self, now: Figures, bill: Totals) -> None:
        """Where everything is."""
        gate = {None: "not there yet", True: "open", False: "closed"}[now.gate_open]
        if self._live is not None:
            self._live.update(self._table(gate, now, bill))
        elif self.elapsed - self._last_line >= LINE_EVERY_S:
            self._last_line = self.elapsed
            pods = f"{now.home} home, {now.virtual} external, {now.pending} pending"
            paid = f"{bill.living} instances live, ${bill.cost:,.2f}"
            self._console.print(
                f"{self.elapsed:6.1f} s  gate {gate}, {now.free_gpus} GPUs free at home; pods: {pods}; {paid}"
            )

    def _table(self, gate: str, now: Figures, bill: Totals) -> Table:
        table = Table(
            box=box.SIMPLE_HEAD,
            title=f"Overspill demo, {self.elapsed:.0f} s",
            caption="\n".join(self._notes[-NOTES_SHOWN:]),
        )
        table.caption_justify = "left"
        for column in ("gate", "free GPUs", "home", "external", "pending", "instances", "external cost"):
            table.add_column(column, justify="right")
        table.add_row(
            gate,
            str(now.free_gpus),
            str(now.home),
            str(now.virtual),
            str(now.pending),
            str(bill.living),
            f"${bill.cost:,.2f}",
        )
        return table
