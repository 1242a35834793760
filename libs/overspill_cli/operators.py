"""The operator's commands and their arguments; what they do is in the modules they call."""

import os
from enum import StrEnum
from typing import Annotated

from cyclopts import App, Parameter

from overspill_cli.finishing import finish as _run
from overspill_cli.output import Format


class Pausable(StrEnum):
    """The services that have effects."""

    decider = "decider"
    evictor = "evictor"
    admitter = "admitter"
    bridge = "bridge"


Output = Annotated[Format, Parameter(name=["--output", "-o"], help="table for people, json for programs.")]
AllowContext = Annotated[
    tuple[str, ...],
    Parameter(name=["--allow-context"], help="A context that may be changed, besides kind-* and overspill-*."),
]
For = Annotated[str | None, Parameter(name=["--for"], help="How long: 30s, 15m, 2h, 1d; without it until taken back.")]
Reason = Annotated[str, Parameter(name=["--reason"], help="Why, for those who will ask.")]

gate_app = App(name="gate", help="Show a virtual node's gate and why it is so, or order it open or closed.")


@gate_app.default
def gate(node: str, /, *, output: Output = Format.table) -> int:
    """Show the gate of a virtual node: its state, an operator's order, and the decider's last decision."""
    from overspill_cli import operating

    return _run(operating.show_gate(os.environ, node, output=output))


@gate_app.command(name="open")
def gate_open(node: str, /, *, lasting: For = None, reason: Reason = "", allow_context: AllowContext = ()) -> int:
    """Order the gate open: work may overflow whatever the marks say, and even if no provider reports stock."""
    from overspill_cli import operating

    return _run(operating.order_gate(os.environ, node, "open", lasting=lasting, reason=reason, allowed=allow_context))


@gate_app.command(name="close")
def gate_close(node: str, /, *, lasting: For = None, reason: Reason = "", allow_context: AllowContext = ()) -> int:
    """Order the gate closed: nothing new overflows, and what has overflowed comes home as room allows."""
    from overspill_cli import operating

    return _run(operating.order_gate(os.environ, node, "closed", lasting=lasting, reason=reason, allowed=allow_context))


@gate_app.command(name="auto")
def gate_auto(node: str, /, *, allow_context: AllowContext = ()) -> int:
    """Take an order back: the gate follows the marks again."""
    from overspill_cli import operating

    return _run(operating.free_gate(os.environ, node, allowed=allow_context))


def pause(*services: Pausable, lasting: For = None, reason: Reason = "", allow_context: AllowContext = ()) -> int:
    """Hold services still, all of them when none is named: no gate moves, nobody is evicted, admitted or created.

    What runs goes on, at home and outside. Exits with 1 when a service is not led in the namespace: nobody is held.
    """
    from overspill_cli import operating

    names = tuple(one.value for one in services)
    return _run(operating.pause(os.environ, names, lasting=lasting, reason=reason, allowed=allow_context))


def resume(*services: Pausable, allow_context: AllowContext = ()) -> int:
    """Let paused services go on, all of them when none is named."""
    from overspill_cli import operating

    return _run(operating.resume(os.environ, tuple(one.value for one in services), allowed=allow_context))


def uninstall(
    *,
    yes: Annotated[
        bool, Parameter(negative="", help="Do it; without it the plan is printed and nothing changed.")
    ] = False,
    dry_run: Annotated[bool, Parameter(negative="", help="Print what would be done, and do nothing.")] = False,
    now: Annotated[
        bool,
        Parameter(
            negative="", help="Evict every spilled pod at once, budgets respected, with or without room at home."
        ),
    ] = False,
    timeout: Annotated[str, Parameter(help="How long all of it may take: 30s, 15m, 2h, 1d.")] = "30m",
    provider: Annotated[
        tuple[str, ...],
        Parameter(help="NAME=URL?token=TOKEN, may be repeated; those of OVERSPILL_BRIDGE_PROVIDERS by default."),
    ] = (),
    allow_context: AllowContext = (),
) -> int:
    """Take Overspill out of a cluster: gates closed, pods home, every instance proven gone, then all that is ours.

    It refuses to finish while an instance lives or a service still leads, and names it; run it again at any time. It
    looks as long as a provider's list may lack a new instance: OVERSPILL_BRIDGE_LIST_LAG seconds, 30 by default.
    Suspended Jobs of queues are unsuspended, unless Kueue's own controller runs. What is left then goes with
    `kubectl delete -k deploy/`, but for Kueue's kinds and the queues, which stay.
    """
    from overspill_cli import uninstalling

    options = uninstalling.Options(
        yes=yes, dry_run=dry_run, now=now, timeout=timeout, provider=provider, allowed=allow_context
    )
    return _run(uninstalling.uninstall(os.environ, options))


def add_to(app: App) -> None:
    """Register everything here."""
    app.command(gate_app)
    app.command(pause)
    app.command(resume)
    app.command(uninstall)
