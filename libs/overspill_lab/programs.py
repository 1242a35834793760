"""What the supervisor is told about a program: its command, when it counts as ready, and what to do when it dies.

Data only; the supervisor acts on it. It must not know which programs a lab has.
"""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct


class Announces(Struct, frozen=True, kw_only=True):
    """Ready when it prints one JSON object on a line of its standard output."""


class Answers(Struct, frozen=True, kw_only=True):
    """Ready when this URL answers 200."""

    url: str


class Listens(Struct, frozen=True, kw_only=True):
    """Ready when a TCP connection to this local port is accepted."""

    port: int


Readiness: TypeAlias = Announces | Answers | Listens


class Program(Struct, frozen=True, kw_only=True):
    """One process of the lab."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] | None = None  # the whole of it; None: the supervisor's own
    readiness: Readiness = Announces()
    restarts: bool = True  # False: its death is the lab's end, because what it knew is lost
    restart_after_s: float = 0.5
    stop_within_s: float = 5.0  # SIGTERM first; then SIGKILL


class State(StrEnum):
    """Where a program is in its life."""

    STARTING = "starting"
    READY = "ready"
    DIED = "died"  # by itself or by a kill nobody asked the supervisor for
    KILLED = "killed"  # because somebody asked
    STOPPED = "stopped"


class Progress(Struct, frozen=True, kw_only=True):
    """A change of state, for whoever shows it."""

    name: str
    state: State
    detail: str = ""


class Death(Struct, frozen=True, kw_only=True):
    """An end of a program that nobody asked for."""

    name: str
    exit_code: int  # negative: the signal's number
    log: Path
    log_tail: str

    def __str__(self) -> str:
        """In plain words, with the end of the log."""
        how = f"signal {-self.exit_code}" if self.exit_code < 0 else f"exit code {self.exit_code}"
        return f"{self.name} ended by itself ({how}); the end of {self.log}:\n{self.log_tail}"


class LabError(Exception):
    """The lab cannot start or go on; the message names the program and ends with its log."""
