"""Logs as events with fields: JSON for machines, a console line on a terminal, always on standard error."""

import logging
import sys
from typing import Any, TextIO

import msgspec
import structlog

from overspill_runtime.settings import LogFormat, LogLevel

LEVELS = {
    LogLevel.DEBUG: logging.DEBUG,
    LogLevel.INFO: logging.INFO,
    LogLevel.WARNING: logging.WARNING,
    LogLevel.ERROR: logging.ERROR,
}


def configure(*, service: str, form: LogFormat, level: LogLevel, stream: TextIO | None = None) -> Any:
    """Set up this process' logging and return its logger with `service` bound.

    The standard library's logging (of libraries below us) is routed to the same stream, from warnings upwards.
    """
    out = stream or sys.stderr
    console = form is LogFormat.CONSOLE or (form is LogFormat.AUTO and out.isatty())
    processors: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if console:
        processors.append(structlog.dev.ConsoleRenderer(colors=out.isatty()))
    else:
        processors += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(serializer=_encode)]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=out),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(stream=out, level=logging.WARNING, format="%(levelname)s %(name)s %(message)s", force=True)
    return structlog.get_logger().bind(service=service)


def _encode(event: Any, **_: Any) -> str:
    """JSON; what JSON cannot carry is written as its repr, so that a log line never fails."""
    return msgspec.json.encode(event, enc_hook=repr).decode()
