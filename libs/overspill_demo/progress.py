"""Shows a performance while it goes on: a live table on a terminal, a line at times without one. Always on stderr."""

from collections.abc import Callable
from typing import Final, Self

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table

from overspill_demo.provider import Totals
from overspill_demo.recollection import Figures
from overspill_runtime.terminal import wrapped

LINE_EVERY_S: Final = 5.0
INDENT: Final = " " * 10  # below the text of a note


class Progress:
    """Context manager; `show` may be called as often as figures change."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._started = clock()
        self._last_line = -LINE_EVERY_S
        self._console = Console(stderr=True, highlight=False, markup=False)
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

    def note(self, *lines: str) -> None:
        """Something happened. The lines stay above the table. The first is prose and is broken between words; those
        after it are never broken: they may be copied.
        """
        text = f"{self.elapsed:6.1f} s  {lines[0]}"
        first = [text]
        if self._console.is_terminal:
            first = list(wrapped(text, self._console.width, indent=_leading(text), hanging=len(INDENT)))
        for line in (*first, *(f"{INDENT}{line}" for line in lines[1:])):
            self._console.print(line, soft_wrap=True)

    def show(self, now: Figures, bill: Totals) -> None:
        """Where everything is."""
        if self._live is not None:
            self._live.update(table(now, bill, elapsed=self.elapsed))
        elif self.elapsed - self._last_line >= LINE_EVERY_S:
            self._last_line = self.elapsed
            pods = f"{now.home} home, {now.virtual} external, {now.pending} pending"
            paid = f"{bill.living} instances live, ${bill.cost:,.2f}"
            self.note(f"gate {_gate(now)}, {now.free_gpus} GPUs free at home; pods: {pods}; {paid}")


def table(now: Figures, bill: Totals, *, elapsed: float) -> Table:
    """The figures of a moment, at most 80 columns wide."""
    shown = Table(box=box.SIMPLE_HEAD, title=f"Overspill demo, {elapsed:.0f} s", show_edge=False)
    columns = {
        "gate": _gate(now),
        "free GPUs": f"{now.free_gpus}",
        "home": f"{now.home}",
        "external": f"{now.virtual}",
        "pending": f"{now.pending}",
        "instances": f"{bill.living}",
        "cost": f"${bill.cost:,.2f}",
    }
    for column in columns:
        shown.add_column(column, justify="right")
    shown.add_row(*columns.values())
    return shown


def _leading(text: str) -> int:
    return len(text) - len(text.lstrip())


def _gate(now: Figures) -> str:
    return {None: "none yet", True: "open", False: "closed"}[now.gate_open]
