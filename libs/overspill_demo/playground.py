"""`overspill lab`: the lab with all services and nobody's story, until it is interrupted."""

import asyncio
import sys
from pathlib import Path

import msgspec

from overspill_demo import objects
from overspill_demo.arrangement import VIRTUAL_NODE, arranged
from overspill_demo.ending import place, told_when_stopped, where_the_ledger_is
from overspill_demo.scenario import ScenarioError, built_in, load
from overspill_lab.lab import Lab


async def play(*, nodes: Path | None, folder: Path | None) -> int:
    """Run until Ctrl-C or SIGTERM, which is said and cancels as ever.

    Raises ScenarioError for a nodes file that cannot be used, LabError when the lab cannot run.
    """
    home = _nodes(nodes) if nodes else objects.home_nodes(load(built_in()))
    with place(folder, prefix="overspill-lab-") as where:
        _say(f"starting the lab in {where}")
        try:
            await told_when_stopped(_lab(home, where), _say)
        except asyncio.CancelledError:
            _say(where_the_ledger_is(where))
            raise
    return 0


async def _lab(home: list[objects.Body], where: Path) -> None:
    async with Lab(where, nodes=home, service_settings=arranged(())) as lab:
        _say(f"Prometheus {lab.prometheus_url}, provider {lab.cloud_url}, logs {where}")
        _say("for another shell, to copy:\n")
        for line in lab.exports:
            _say(line)
        command = sys.argv[0]  # as it was typed, so that what is told can be typed too
        _say(f"\nthen for instance: {command} doctor, {command} gate {VIRTUAL_NODE}, {command} events,")
        _say("""kubectl get nodes, nats --server "$OVERSPILL_NATS_URL" subscribe 'overspill.>'\n""")
        _say("ready; Ctrl-C stops it")
        await lab.failed()


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _nodes(path: Path) -> list[objects.Body]:
    try:
        found = msgspec.json.decode(path.read_bytes(), type=list[objects.Body])
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise ScenarioError(
            f"{path}: {error}; accepted: a list of nodes with name, cpu, memory, gpus, model"
        ) from error
    return found
