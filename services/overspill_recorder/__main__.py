"""`python -m overspill_recorder`: the recorder as a process."""

from overspill_recorder.service import SERVICE, run
from overspill_recorder.settings import Settings
from overspill_service import main_on_bus


def main() -> None:
    """Run the recorder with settings from the environment."""
    main_on_bus(SERVICE, Settings, run)


if __name__ == "__main__":
    main()
