"""`overspill schemas`: the events' JSON Schemas for readers in other languages."""

from pathlib import Path

from overspill_cli.output import Exit, UsageError, print_json
from overspill_events.catalog import CATALOG
from overspill_events.schemas import schema_text, schemas


def write_schemas(directory: Path | None) -> Exit:
    """All schemas as one document on stdout, or as `<type>.json` files in `directory`.

    Raises UsageError for a directory that cannot be written to.
    """
    if directory is None:
        print_json(schemas())
        return Exit.FINE
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for ce_type, event_type in CATALOG.items():
            (directory / f"{ce_type}.json").write_text(schema_text(event_type))
    except OSError as error:
        raise UsageError(f"--directory {directory}: cannot be written to: {error.strerror}") from error
    return Exit.FINE
