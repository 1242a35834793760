"""Logs as events with fields: JSON for machines, a console line on a terminal, always on standard error."""

import logging
import sys
from typing import Any, Final, TextIO

import msgspec
import structlog

from overspill_runtime.settings import LogFormat, LogLevel

LEVELS = {
    LogLevel.DEBUG: logging.DEBUG,
    LogLevel.INFO: logging.INFO,
    LogLevel.WARNING: logging.WARNING,
    LogLevel.ERROR: logging.ERROR,
}


OURS: Final = "overspill"  # how our own packages' loggers begin; of everybody else's only warnings are of interest


def configure(*, service: str, form: LogFormat, level: LogLevel, stream: TextIO | None = None) -> Any:
    """Set up this process' logging and return its logger with `service` bound.

    What is said through the standard library's logging (by our libs that must not know the service, and by libraries
    below us from warnings upwards) becomes a record of the same form on the same stream.
    """
    out = stream or sys.stderr
    console = form is LogFormat.CONSOLE or (form is LogFormat.AUTO and out.isatty())
    common: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    rendering: list[Any] = (
        [structlog.dev.ConsoleRenderer(colors=out.isatty())]
        if console
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(serializer=_encode)]
    )
    structlog.configure(
        processors=[*common, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=out),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(out)
    handler.addFilter(lambda record: record.levelno >= logging.WARNING or record.name.startswith(OURS))
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*common, structlog.stdlib.add_logger_name, _of(service)],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
        )
    )
    logging.basicConfig(handlers=[handler], level=LEVELS[level], force=True)
    return structlog.get_logger().bind(service=service)


def _of(service: str) -> Any:
    def add(_logger: Any, _method: str, entry: dict[str, Any]) -> dict[str, Any]:
        return {**entry, "service": service}

    return add


def _encode(event: Any, **_: Any) -> str:
    """JSON; what JSON cannot carry is written as its repr, so that a log line never fails."""
    return msgspec.json.encode(event, enc_hook=repr).decode()
