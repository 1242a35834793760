"""The Dockerfile as data: its instructions, stage by stage."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

DOCKERFILE = Path(__file__).parents[3] / "Dockerfile"


@dataclass(frozen=True)
class Instruction:
    """One instruction, its continued lines joined."""

    name: str
    rest: str
    stage: str  # "" before the first FROM

    def copied_from_context(self) -> tuple[str, ...]:
        """What COPY takes from the build's context; nothing when it copies from another stage."""
        if self.name != "COPY" or "--from=" in self.rest:
            return ()
        return tuple(word.rstrip("/") for word in self._words()[:-1])

    @property
    def target(self) -> str:
        """Where COPY writes."""
        return self._words()[-1].rstrip("/")

    def json(self) -> list[str]:
        """The words of an instruction in its exec form."""
        words = json.loads(self.rest)
        assert isinstance(words, list)
        return words

    def _words(self) -> list[str]:
        return [word for word in self.rest.split() if not word.startswith("--")]


def instructions() -> list[Instruction]:
    """All of them, in order."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    found: list[Instruction] = []
    current = ""
    for line in filter(None, (line.strip() for line in joined.splitlines())):
        name, _, rest = line.partition(" ")
        if name == "FROM":
            current = rest.split(" AS ")[1]
        found.append(Instruction(name=name, rest=rest, stage=current))
    return found


def stage(name: str) -> list[Instruction]:
    """The instructions of one stage."""
    found = [one for one in instructions() if one.stage == name]
    assert found, f"no stage {name}"
    return found
