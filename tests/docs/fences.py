"""The fenced blocks of the documentation: their language, their title and their text."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("docs/*.md"), *ROOT.glob("docs/runbooks/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
)
_FENCE = re.compile(r"^( *)```(\w*)([^\n]*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Fence:
    page: str
    line: int
    language: str
    title: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def commands(self) -> list[str]:
        """The command lines: all of a shell's block, those behind `$ ` of a session; comments are none."""
        joined = self.text.replace("\\\n", " ").splitlines()
        if self.language == "sh":
            found = [line.strip() for line in joined]
        else:
            found = [line.strip()[2:] for line in joined if line.strip().startswith("$ ")]
        return [line.split("  #")[0].strip() for line in found if line and not line.startswith("#")]


def fences() -> list[Fence]:
    """All blocks of all pages."""
    found = []
    for page in PAGES:
        text = page.read_text()
        for match in _FENCE.finditer(text):
            title = re.search(r'title="([^"]+)"', match[3])
            line = text.count("\n", 0, match.start()) + 1
            body = textwrap.dedent(match[4])
            found.append(Fence(str(page.relative_to(ROOT)), line, match[2], title[1] if title else "", body))
    return found
