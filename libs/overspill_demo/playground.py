"""`overspill lab`: the lab with all services and nobody's story, until it is interrupted."""

import sys
import tempfile
from pathlib import Path

import msgspec

from overspill_demo import objects
from overspill_demo.arrangement import arranged
from overspill_demo.scenario import ScenarioError, built_in, load
from overspill_lab.lab import Lab


async def play(*, nodes: Path | None, folder: Path | None) -> int:
    """Run until Ctrl-C. Raises ScenarioError for a nodes file that cannot be used, LabError when the lab cannot run."""
    home = _nodes(nodes) if nodes else objects.home_nodes(load(built_in()))
    place = folder or Path(tempfile.mkdtemp(prefix="overspill-lab-"))
    async with Lab(place, nodes=home, service_settings=arranged(())) as lab:
        told = {
            "NATS": lab.nats_url,
            "Kubernetes": f"export KUBECONFIG={lab.kubeconfig}",
            "Prometheus": lab.prometheus_url,
            "provider": lab.cloud_url,
            "ledger": lab.ledger,
            "logs": place,
        }
        sys.stdout.writelines(f"{name:11} {value}\n" for name, value in told.items())
        sys.stdout.flush()
        await lab.failed()
    return 0


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
