"""`python -m overspill_sampler`."""

from overspill_sampler.service import LEASE, SERVICE, body
from overspill_sampler.settings import Settings
from overspill_service import main as run


def main() -> None:
    """Run until told to stop; settings come from the environment."""
    run(SERVICE, Settings, body, lease=LEASE)


if __name__ == "__main__":
    main()
