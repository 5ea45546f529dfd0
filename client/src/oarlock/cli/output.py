"""How rows become text: tables as kubectl's, and JSON, YAML and lines of JSON that have a version and a schema."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from oarlock.errors import OarlockError
from oarlock.exit_codes import ExitCode
from oarlock.terminal import CONTROLS, escaped, escaped_json
from oarlock_api.naming import camel_case

VERSION = 1
"""Of the JSON. Fields may be added; one that goes or changes its meaning makes it 2."""
FORMATS = ("table", "wide", "json", "yaml", "jsonl", "name")
Column = tuple[str, Callable[[Any], object]]


class UsageError(OarlockError):
    """The command line is wrong."""

    code = ExitCode.USAGE


def checked(output: str) -> str:
    """The format. Raises UsageError."""
    if output not in FORMATS:
        raise UsageError(f"-o {output} is no format: one of {', '.join(FORMATS)}")
    return output


def show(
    kind: str,
    rows: Sequence[Any],
    columns: Sequence[Column],
    *,
    output: str,
    wide: Sequence[Column] = (),
    empty: str = "",
) -> None:
    """Print rows. `kind` is what JSON calls the list, `empty` what is said to people where there are none."""
    output = checked(output)
    if output in {"json", "yaml"}:
        write({"version": VERSION, "kind": kind, "items": [fields(row) for row in rows]}, output)
    elif output == "jsonl":
        for row in rows:
            say_json(fields(row))
    elif output == "name":
        for row in rows:
            say(str(columns[0][1](row)))
    elif rows:
        chosen = [*columns, *(wide if output == "wide" else ())]
        table([title for title, _ in chosen], [[read(row) for _, read in chosen] for row in rows])
    elif empty:
        note(empty)


def fields(row: Any) -> dict[str, Any]:
    """A row as JSON has it."""
    return {camel_case(name): value for name, value in asdict(row).items()}


def write(document: Mapping[str, Any], output: str) -> None:
    """One document as JSON or YAML."""
    if output == "yaml":
        import yaml  # noqa: PLC0415

        text = yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=_takes_unicode())
        if CONTROLS.search(text):
            text = yaml.safe_dump(dict(document), sort_keys=False)
        sys.stdout.write(text)
    else:
        say_json(document, indent=2)


def table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns with two spaces between them; what is not known is a dash."""
    lines = [list(titles), *([_cell(value) for value in row] for row in rows)]
    widths = [max(_width(line[column]) for line in lines) for column in range(len(titles))]
    for line in lines:
        cells = (cell + " " * (width - _width(cell)) for cell, width in zip(line, widths, strict=True))
        say("  ".join(cells).rstrip())


def age(time: str | None, now: datetime | None = None) -> str | None:
    """How long ago, as kubectl says it: 45s, 12m, 5h, 3d."""
    try:
        then = datetime.fromisoformat(time or "")
    except ValueError:
        return None
    return duration(((now or datetime.now(UTC)) - then).total_seconds()) if then.tzinfo else None


def duration(seconds: float | None) -> str | None:
    """Seconds in two words at most."""
    if seconds is None:
        return None
    whole = max(0, int(seconds))
    if whole < 120:
        return f"{whole}s"
    if whole < 7200:
        return f"{whole // 60}m"
    if whole < 172800:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d"


def say(line: str) -> None:
    """A line of the answer, or several."""
    sys.stdout.write(escaped(line) + "\n")


def say_json(document: Mapping[str, Any], *, indent: int | None = None) -> None:
    """A JSON object, on one line where there is no `indent`."""
    sys.stdout.write(escaped_json(json.dumps(document, indent=indent, ensure_ascii=not _takes_unicode())) + "\n")


def note(line: str) -> None:
    """A line for people, beside the answer."""
    sys.stdout.flush()
    sys.stderr.write(escaped(line) + "\n")


def _takes_unicode() -> bool:
    return "utf" in (sys.stdout.encoding or "").lower()


def _width(text: str) -> int:
    """Columns of a terminal that a text takes: two for a letter of Chinese."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # noqa: PLC0415 - few tables need it

    return cell_len(text)


def _cell(value: object) -> str:
    if value is None or value == "":
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else escaped(" ".join(str(value).split()))
