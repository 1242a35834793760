"""What an operator can turn on the recorder."""

from pathlib import Path
from typing import Annotated

from msgspec import Meta

from overspill_runtime.settings import CommonSettings


class Settings(CommonSettings, frozen=True, kw_only=True):
    """Fields are read from OVERSPILL_RECORDER_<FIELD>."""

    path: str = "overspill.db"  # the ledger file; its folder is made
    batch: Annotated[int, Meta(ge=1, le=5000)] = 500  # events in one transaction at most
    durable: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]+$")] = "recorder"  # two ledgers of one stream need two names

    @property
    def file(self) -> Path:
        """The ledger file."""
        return Path(self.path).expanduser()
