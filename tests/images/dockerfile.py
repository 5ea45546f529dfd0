"""A Dockerfile as its instructions, and what .dockerignore lets into a build.

As much of Docker's rules as our own files use: continued lines, comments, several stages; patterns with `*`, `**` and `!`,
of which the last one that matches a path, or a folder above it, decides.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction, such as USER 1000:1000, and the number of its stage; 0 is before the first FROM."""

    stage: int
    name: str
    argument: str

    @property
    def words(self) -> list[str]:
        """The argument's words, quotes removed."""
        return shlex.split(self.argument)


def instructions(path: Path) -> list[Instruction]:
    """All instructions of a Dockerfile, in order."""
    lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
    found: list[Instruction] = []
    stage = 0
    for line in re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines():
        if line.strip():
            name, _, argument = line.strip().partition(" ")
            stage += name == "FROM"
            found.append(Instruction(stage, name, argument.strip()))
    return found


def sources(instruction: Instruction) -> list[str]:
    """What a COPY takes from the repository; nothing where it takes from another stage."""
    words = instruction.words
    if any(word.startswith("--from=") for word in words):
        return []
    return [word for word in words[:-1] if not word.startswith("--")]


class Ignored:
    """The rules of .dockerignore."""

    def __init__(self, text: str) -> None:
        lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
        self._rules = [(_pattern(line.removeprefix("!")), not line.startswith("!")) for line in lines]

    def __call__(self, path: str) -> bool:
        """Whether a path below the repository's root stays out of the build."""
        parts = path.split("/")
        ways = ["/".join(parts[:length]) for length in range(1, len(parts) + 1)]
        ignored = False
        for pattern, ignores in self._rules:
            if any(pattern.fullmatch(way) for way in ways):
                ignored = ignores
        return ignored


def _pattern(text: str) -> re.Pattern[str]:
    words = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*"}
    pieces = re.split(r"(\*\*/|\*\*|\*)", text.strip("/"))
    return re.compile("".join(words.get(piece) or re.escape(piece) for piece in pieces))
