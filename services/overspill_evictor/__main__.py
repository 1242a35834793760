"""`python -m overspill_evictor`: the evictor as a process."""

from overspill_evictor.service import LEASE, SERVICE, run
from overspill_evictor.settings import Settings
from overspill_service import main as serve


def main() -> None:
    """Run the evictor with settings from the environment."""
    serve(SERVICE, Settings, run, lease=LEASE)


if __name__ == "__main__":
    main()
