"""The table in docs/why.md, made from `causes`, and docs/why-v1.schema.json, made from `oarlock.story`.

`python -m oarlock.explain.page` writes both; with --check it only compares.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from oarlock.explain.causes import OF_CLASS, OF_CODE, Cause, Part
from oarlock.story import VERSION, Story
from oarlock_api.generated import REPOSITORY, write_or_check
from oarlock_api.naming import camel_case

PATH = REPOSITORY / "docs" / "why.md"
SCHEMA = REPOSITORY / "docs" / f"why-v{VERSION}.schema.json"
_BEGIN = "<!-- Made from client/src/oarlock/explain/causes.py by `make generate`. -->\n"
_END = "<!-- The end of what is made. -->\n"
_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}


def render(page: str) -> str:
    """`page` with the tables as the causes are now. Raises ValueError where the marks around them are missing."""
    before, _, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not end:
        raise ValueError(f"{PATH} lacks the lines around its tables: {_BEGIN!r} and {_END!r}")
    return f"{before}{_BEGIN}\n" + "\n".join(_tables()) + f"\n{_END}{after}"


def _tables() -> Iterator[str]:
    for part in Part:
        yield from (f"### {part}", "", "| cause | what it means | what to do |", "| --- | --- | --- |")
        yield from (f"| `{one.value}` | {one.meaning} | {one.next} |" for one in Cause if one.part is part)
        yield ""
    yield from (
        "### By exit code and class",
        "",
        "Where a report says no more than its code, or a status than its class:",
    )
    yield from ("", "| code | cause |", "| --- | --- |")
    yield from (f"| {code.value} | `{cause.value}` |" for code, cause in OF_CODE.items())
    yield from ("", "| class | cause |", "| --- | --- |")
    yield from (f"| {kind.value} | `{cause.value}` |" for kind, cause in OF_CLASS.items())
    yield ""


def schema() -> str:
    """JSON schema of `oarlock why -o json`."""
    known: dict[str, Any] = {}
    root = _object(Story, known)
    about = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"oarlock why, version {VERSION}"}
    return json.dumps({**about, **root, "$defs": dict(sorted(known.items()))}, indent=2) + "\n"


def _object(kind: type, known: dict[str, Any]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    told = {camel_case(one.name): _type(hints[one.name], known) for one in fields(kind)}
    needed = [camel_case(one.name) for one in fields(kind) if one.default is MISSING and one.default_factory is MISSING]
    meaning = " ".join((kind.__doc__ or "").split())
    return {"type": "object", "description": meaning, "properties": told, "required": needed}


def _type(hint: Any, known: dict[str, Any]) -> dict[str, Any]:
    outer, inner = get_origin(hint), get_args(hint)
    if outer in (Union, UnionType):  # X | None: what is not known is left out
        return _type(inner[0], known)
    if outer is tuple:
        return {"type": "array", "items": _type(inner[0], known)}
    if is_dataclass(hint) and isinstance(hint, type):
        known[hint.__name__] = _object(hint, known)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    return {"type": _TYPES[hint]}


if __name__ == "__main__":
    found = write_or_check(module="oarlock.explain.page", path=PATH, content=render(PATH.read_text()))
    sys.exit(write_or_check(module="oarlock.explain.page", path=SCHEMA, content=schema()) or found)
