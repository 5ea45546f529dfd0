"""What became of every option: three lists for people, and what is left for them to do."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from oarlock_import.lines import line_of
from oarlock_import.rows import Fate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oarlock_import.lines import Lines

_HEADINGS = {
    Fate.REFUSED: "refused, the job would not do what it asks for",
    Fate.MAPPED: "mapped",
    Fate.IGNORED: "ignored, nothing in the job needs it",
}


@dataclass(frozen=True, slots=True)
class ReportEntry:
    """One option's fate. A secret's value is in no entry."""

    source: str
    key: str
    fate: Fate
    words: str
    differs: str = ""
    """How the job differs from SimpleTuner here, though the option is mapped."""
    line: int | None = None
    """Of its file, where something has to be changed there."""

    def __str__(self) -> str:
        place = f"{self.source}, line {self.line}" if self.line else self.source
        line = f"  {place}: {self.key}: {self.words}" if self.words else f"  {place}: {self.key}"
        return f"{line}\n      differs: {self.differs}" if self.differs else line


@dataclass(slots=True)
class Report:
    """The entries, in the order in which they were made, and what a person has to do."""

    entries: list[ReportEntry] = field(default_factory=list)
    tasks: list[str] = field(default_factory=list)
    _places: Lines = field(default_factory=dict)

    def knows(self, source: str, lines: Lines) -> None:
        """Take over where the keys of a file stand."""
        self._places |= {(f"{source}{group}", key): line for (group, key), line in lines.items()}

    def mapped(self, source: str, key: str, *, words: str, differs: str = "") -> None:
        """Say that an option has its place in the job."""
        self.entries.append(ReportEntry(source, key, Fate.MAPPED, words, differs))

    def ignored(self, source: str, key: str, why: str) -> None:
        """Say that an option changes nothing, and why."""
        self.entries.append(ReportEntry(source, key, Fate.IGNORED, why))

    def refused(self, source: str, key: str, why: str) -> None:
        """Say that the job can't do what an option asks for, why, and what to do instead."""
        self.entries.append(ReportEntry(source, key, Fate.REFUSED, why, line=line_of(self._places, source, key)))

    def refused_after_all(self, source: str, key: str, why: str) -> None:
        """Refuse an option that was mapped, because of what it became."""
        self.entries = [entry for entry in self.entries if (entry.source, entry.key) != (source, key)]
        self.refused(source, key, why)

    def task(self, words: str) -> None:
        """Say what a person has to do before the job can run, once."""
        if words not in self.tasks:
            self.tasks.append(words)

    def names(self, fate: Fate) -> list[str]:
        """Keys of one list."""
        return [entry.key for entry in self.entries if entry.fate is fate]

    @property
    def has_refused(self) -> bool:
        """Whether anything was refused: then there is no job."""
        return bool(self.names(Fate.REFUSED))

    def text(self) -> str:
        """The lists for a terminal: what is refused comes first, what is to be done last."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        for fate, heading in _HEADINGS.items():
            chosen = sorted((entry for entry in self.entries if entry.fate is fate), key=lambda entry: entry.source)
            yield f"{heading} ({len(chosen)})"
            yield from (str(entry) for entry in chosen)
        if self.has_refused:
            yield "no job was written: remove or change what is refused, at the top of this report, and import again"
            return
        yield f"to do ({len(self.tasks)})"
        yield from (f"  {task}" for task in self.tasks)


def shown(value: Any) -> str:
    """A value as a report shows it."""
    return value if isinstance(value, str) else json.dumps(value)
