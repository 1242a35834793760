"""`python -m overspill_admitter`: the admitter as a process."""

from overspill_admitter.service import LEASE, SERVICE, run
from overspill_admitter.settings import Settings
from overspill_service import main as serve


def main() -> None:
    """Run the admitter with settings from the environment."""
    serve(SERVICE, Settings, run, lease=LEASE)


if __name__ == "__main__":
    main()
