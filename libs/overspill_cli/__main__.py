"""`overspill`: the commands and their arguments. What they do is in the modules they call."""

import asyncio
import importlib
import logging
import os
import sys
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import cyclopts
from cyclopts import App, Parameter

from overspill_cli import operators
from overspill_cli.finishing import finish as _run
from overspill_cli.output import Exit, Format


def _told(default: object) -> str | None:
    """A default as --help shows it: one that means "not given" is not shown."""
    return None if default in (None, (), "") or default is False else str(default)


app = App(
    name="overspill",
    help="""Keeps GPU work at home while there is room, overflows it when there is none, and brings it home.

Exit codes: 0 fine; 1 a check or promise is broken; 2 arguments, settings or files that cannot be used;
130 interrupted; 143 terminated.""",
    version=version("overspill"),
    version_flags=["--version"],
    default_parameter=Parameter(negative_iterable=(), show_default=_told),
)
operators.add_to(app)


class Service(StrEnum):
    """The services, as they are named in settings, subjects and leases."""

    sampler = "sampler"
    decider = "decider"
    evictor = "evictor"
    admitter = "admitter"
    bridge = "bridge"
    recorder = "recorder"


class Victim(StrEnum):
    """What the demo can kill in the middle of the story."""

    sampler = "sampler"
    decider = "decider"
    evictor = "evictor"
    admitter = "admitter"
    bridge = "bridge"
    recorder = "recorder"
    nats = "nats"


Output = Annotated[Format, Parameter(name=["--output", "-o"], help="table for people, json for programs.")]
LedgerPath = Annotated[
    Path,
    Parameter(
        name=["--ledger"], env_var="OVERSPILL_RECORDER_PATH", help="The recorder's file; the demo prints its own."
    ),
]
Folder = Annotated[
    Path | None,
    Parameter(
        help="Where everything is written, and left at the end. By default a temporary folder, of which the ledger and "
        "the logs are left, or nothing when there is no ledger yet."
    ),
]
DEFAULT_LEDGER = Path("overspill.db")


@app.command
def run(service: Service) -> None:
    """Run one service in the foreground; its settings come from OVERSPILL_* and the file OVERSPILL_SETTINGS names."""
    importlib.import_module(f"overspill_{service.value}.__main__").main()


@app.command
def demo(
    *,
    json: Annotated[Path | None, Parameter(help="Write the summary there as JSON.")] = None,
    kill: Annotated[Victim | None, Parameter(help="SIGKILL this in the middle; the lab starts it again.")] = None,
    scenario: Annotated[Path | None, Parameter(help="Another scenario file.")] = None,
    setting: Annotated[
        tuple[str, ...], Parameter(help="SERVICE:OVERSPILL_NAME=VALUE for a service of the demo; may be repeated.")
    ] = (),
    deadline: Annotated[
        float | None,
        Parameter(help="Seconds after which the story is judged as it stands; 165, or 600 with --kubeconfig."),
    ] = None,
    folder: Folder = None,
    kubeconfig: Annotated[
        Path | None, Parameter(help="Play on the cluster of this file's current context instead of the lab's own.")
    ] = None,
    allow_context: Annotated[
        tuple[str, ...], Parameter(help="A context that may be changed, besides kind-* and overspill-*.")
    ] = (),
    kwok: Annotated[
        Path | None, Parameter(help="With --kubeconfig: KWOK's binary plays the kubelets of the home nodes.")
    ] = None,
) -> int:
    """Play the whole story in the lab: research fills home, inference overflows, and comes home a few at a time.

    With --kubeconfig the control plane is one that runs already (Kubernetes 1.36 or newer, no GPUs of its own); what
    the demo makes there it takes away at the end. Ends with exit code 1 when a promise is broken, and says which.
    """
    from overspill_cli.staging import staged
    from overspill_demo.performance import Options

    options = Options(
        scenario=scenario,
        kill=kill.value if kill else None,
        settings=setting,
        deadline=deadline,
        folder=folder,
        summary=json,
    )
    return _run(staged(options, kubeconfig=kubeconfig, allowed=allow_context, kwok=kwok))


@app.command
def lab(
    *,
    nodes: Annotated[Path | None, Parameter(help="Home nodes as JSON; the demo's by default.")] = None,
    folder: Folder = None,
) -> int:
    """Run the lab with all services until Ctrl-C or SIGTERM, for trying things with kubectl, nats and this command.

    When it is ready it prints the `export` lines with which other commands find it.
    """
    from overspill_demo.playground import play

    return _run(play(nodes=nodes, folder=folder))


@app.command
def events(
    *,
    name: Annotated[tuple[str, ...], Parameter(name=["--type", "-t"], help="GateOpened, …; may be repeated.")] = (),
    service: Annotated[tuple[Service, ...], Parameter(name=["--service", "-s"], help="May be repeated.")] = (),
    since: Annotated[str | None, Parameter(help="30s, 15m, 2h, 1d ago, or an ISO 8601 time.")] = None,
    text: Annotated[str, Parameter(help="Only events that hold this in subject or payload.")] = "",
    limit: Annotated[
        int, Parameter(name=["--limit", "-n"], help="The youngest so many; stderr tells when there are older ones.")
    ] = 200,
    ledger: LedgerPath = DEFAULT_LEDGER,
    output: Output = Format.table,
) -> int:
    """Show recorded events, oldest first, each with the numbers that led to it."""
    from overspill_cli import asking

    services = tuple(item.value for item in service)
    return _run(
        asking.events(ledger, names=name, services=services, since=since, text=text, limit=limit, output=output)
    )


@app.command
def explain(
    what: Annotated[str, Parameter(help="pod/[NAMESPACE/]NAME, node/NAME or workload/[NAMESPACE/]NAME.")],
    /,
    *,
    namespace: Annotated[
        str, Parameter(name=["--namespace", "-n"], help="Where a pod or workload named without its NAMESPACE is.")
    ] = "default",
    ledger: LedgerPath = DEFAULT_LEDGER,
    output: Output = Format.table,
) -> int:
    """Say why: why a pod is external, why a gate opened, why a return was refused, why a workload waits."""
    from overspill_cli import asking

    return _run(asking.explain(ledger, what, namespace=namespace, output=output))


@app.command
def doctor(
    *,
    ledger: LedgerPath = DEFAULT_LEDGER,
    output: Output = Format.table,
    provider: Annotated[
        tuple[str, ...],
        Parameter(
            help="NAME=URL?token=TOKEN, may be repeated: only list what lives there under our tags, no cluster asked."
        ),
    ] = (),
    expect_none: Annotated[
        bool, Parameter(negative="", help="List instances, and exit with 1 when one lives; see --provider.")
    ] = False,
    cluster_uid: Annotated[
        str | None,
        Parameter(help="List only this cluster's instances: the UID of its namespace kube-system; see --provider."),
    ] = None,
) -> int:
    """Check what Overspill needs: settings, NATS and its stream, the API server, who leads, virtual nodes, policies,
    pauses and the ledger. Exits with 1 when something is a problem; a warning alone is no reason to.

    With --provider, --expect-none or --cluster-uid it lists surviving instances instead; without --provider at the
    providers of OVERSPILL_BRIDGE_PROVIDERS, where a token is not seen by other users of the machine.
    """
    from overspill_cli.doctoring import examine
    from overspill_cli.surviving import examine_providers

    if provider or expect_none or cluster_uid:
        work = examine_providers(
            os.environ, given=provider, expect_none=expect_none, output=output, cluster=cluster_uid
        )
        return _run(work)

    return _run(examine(os.environ, ledger=ledger, output=output))


@app.command
def schemas(*, directory: Annotated[Path | None, Parameter(name=["--directory", "-d"])] = None) -> int:
    """Print the JSON Schema of every event, or write one file per event type into a directory."""
    from overspill_cli.schemas import write_schemas

    return _run(asyncio.to_thread(write_schemas, directory))


def main() -> None:
    """The console script."""
    # A command says in its own words what it finds of the bus; services, which log, go through overspill_runtime.
    logging.getLogger("overspill_bus").addHandler(logging.NullHandler())
    try:
        code = app(exit_on_error=False, result_action="return_value")
    except cyclopts.CycloptsError:
        sys.exit(Exit.USAGE)
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code or 0)


if __name__ == "__main__":
    main()
