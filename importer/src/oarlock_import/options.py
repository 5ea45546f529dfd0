"""The options of one file, taken one by one; what nobody took is refused by name.

Each option that was given ends in exactly one entry of the report. Defaults of SimpleTuner that decide the numbers are
reported as well, since they are written into the job.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any

from oarlock_import import values
from oarlock_import.report import shown
from oarlock_import.rows import Fate, Kind
from oarlock_import.simpletuner import VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oarlock_import.draft import Draft
    from oarlock_import.report import Report
    from oarlock_import.rows import Row

_EMPTY = "empty, so its default counts"
_UNREAD = f"SimpleTuner {VERSION} reads no such variable of config.env, and takes its default"
_ALIKE = 0.8
"""From which likeness on a name may be meant: flux_schedule_shift is flow_schedule_shift's older one."""


class Options:
    """What a file says, in the words of its table.

    `given` is option -> value as it was read; `elsewhere` is option -> the other file that it was read from.
    """

    def __init__(
        self,
        source: str,
        given: Mapping[str, Any],
        *,
        rows: Mapping[str, Row],
        report: Report,
        elsewhere: Mapping[str, str] | None = None,
    ) -> None:
        self.source = source
        self.report = report
        self._elsewhere = elsewhere or {}
        self._rows = rows
        self._names: dict[str, str] = {}
        self._given: dict[str, Any] = {}
        self._done: set[str] = set()
        for name, value in given.items():
            self._accept(name, value)

    def _accept(self, name: str, value: Any) -> None:
        row = self._rows.get(name)
        if row is None and isinstance(value, values.Part):
            self.report.ignored(self.source, name, "no option: its value is in the lines that name it")
        elif row is None:
            alike = difflib.get_close_matches(name, self._rows, n=1, cutoff=_ALIKE)
            meant = f"did you mean {alike[0]}?" if alike else "check the spelling, or remove it"
            self.report.refused(self.source, name, f"not known; {meant}")
        elif values.is_absent(value) and row.key not in self._names:
            self._names[row.key] = name
        elif values.is_absent(value):
            self.report.ignored(self.source, name, _EMPTY)
        elif row.key in self._given and self._given[row.key] != value:
            self.report.refused(self.source, name, f"says something else than {self._names[row.key]}; remove one")
        elif row.key in self._given:
            self.report.ignored(self.source, name, f"says the same as {self._names[row.key]}")
        else:
            if row.key in self._names:
                self.report.ignored(self.source, self._names[row.key], _EMPTY)
            self._given[row.key], self._names[row.key] = value, name

    def __contains__(self, key: str) -> bool:
        return key in self._given

    def name(self, key: str) -> str:
        """The option as the file spells it."""
        return self._names.get(key, key)

    def place(self, key: str) -> str:
        """The file that an option stands in, as the report calls it."""
        return self._elsewhere.get(key, self.source)

    def value(self, key: str) -> Any:
        """Value of an option, read by its kind; SimpleTuner's default where it is absent or cannot be read."""
        row = self._rows[key]
        if key not in self._given:
            return row.default
        try:
            value = values.read(row.kind, self._given[key])
            if row.kind is Kind.TEXT and "prompt" not in key and key != "message_prefix":
                values.refuse_placeholder(value)
        except ValueError as error:
            self.refused(key, str(error))
            return row.default
        if row.words and str(value).lower() not in row.words:
            self.refused(key, f"{shown(value)} is not one of {', '.join(row.words)}")
            return row.default
        return value

    def behind(self, field: str) -> str:
        """The option that a field of the job comes from; one that was given, or else one whose default it is; "" for none."""
        found = [
            row.key
            for row in self._rows.values()
            if any(field == to or field.startswith(f"{to}.") for to in re.split(r",? and |,? or |, ", row.to) if to)
        ]
        return next((key for key in found if key in self._given), found[0] if found else "")

    def raw(self, key: str) -> Any:
        """A value as it stands in the file: for secrets, which are compared and never shown."""
        return self._given.get(key)

    def word(self, key: str) -> str:
        """Our word for an option's value."""
        return self._rows[key].words[str(self.value(key)).lower()]

    def carry(self, draft: Draft, key: str, *, to: str = "", value: Any = None, differs: str = "") -> None:
        """Write an option into the job, as `value` if the job says it in another way, and report it."""
        row = self._rows[key]
        theirs = self.value(key)
        if key in self._done or (theirs is None and value is None):
            return
        ours = value if value is not None else (self.word(key) if row.words else theirs)
        field = to or row.to
        draft.put(field, ours)
        self.mapped(key, words=f"-> {field}: {shown(ours)}", differs=differs)

    def mapped(self, key: str, *, words: str, differs: str = "") -> None:
        """Report an option as mapped, by `words` alone or, where they begin with an arrow, after its value."""
        if key in self._done:
            return
        self._done.add(key)
        if isinstance(self._given.get(key), values.Unread):
            differs = "; ".join(part for part in (differs, _UNREAD) if part)
        default = self._rows[key].default
        if key in self._given:
            said = f"{shown(self._given[key])} {words}" if words.startswith("->") else words
        elif default is not None and words.startswith("->"):
            said = f"absent, its default {shown(default)} {words}"
        else:
            said = f"absent {words}"
        self.report.mapped(self.place(key), self.name(key), words=said, differs=differs)

    def ignored(self, key: str, why: str) -> None:
        """Report a given option as ignored."""
        if key in self._given and key not in self._done:
            self._done.add(key)
            self.report.ignored(self.place(key), self.name(key), why)

    def refused(self, key: str, why: str) -> None:
        """Report an option as refused: one that is absent stands in the way by its default."""
        if key not in self._done:
            self._done.add(key)
            self.report.refused(self.place(key), self.name(key), why)

    def settle(self, draft: Draft) -> None:
        """Do what the table says with every option that no function has decided on."""
        for row in {row.key: row for row in self._rows.values()}.values():
            if row.key in self._done:
                continue
            if row.fate is Fate.MAPPED and not row.judged and (row.key in self._given or row.default is not None):
                self.carry(draft, row.key)
            elif row.key not in self._given:
                if row.key in self._names:
                    self.report.ignored(self.source, self._names[row.key], _EMPTY)
            elif row.fate is Fate.REFUSED and values.asks_for_nothing(self._given[row.key], row.unless):
                self.ignored(row.key, "asks for nothing with this value")
            elif row.fate is Fate.IGNORED:
                self.ignored(row.key, row.why)
            elif row.judged and self.report.has_refused:
                self.ignored(row.key, "not looked at: what it belongs to is refused")
            else:
                self.refused(row.key, row.why or "nothing here makes use of it; remove it")
