"""Discord's form of a message: one text of at most 2000 characters that pings nobody. Pure."""

from __future__ import annotations

from typing import Any

MAX_CONTENT = 2000
"""Discord refuses a longer text. It counts UTF-16 units, so that an emoji is two."""

_MARKS = {"critical": "🔴", "error": "🔴", "warning": "🟠"}
_CUT = " …"


def discord(payload: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """What is posted for a payload. Mentions stay plain text: a file name may well contain @everyone."""
    mark = _MARKS.get(payload["severity"], "")
    first = " ".join(part for part in (prefix, mark, f"**{payload['title']}**") if part)
    where = f"{payload['namespace']}/{payload['job']}, attempt {payload['attempt']}"
    if payload["node"]:
        where += f", node {payload['node']}"
    foot = f"\n`{where}`"
    return {
        "content": _cut(f"{first}\n{payload['message']}", MAX_CONTENT - _units(foot)) + foot,
        "allowed_mentions": {"parse": []},
    }


def _cut(text: str, limit: int) -> str:
    if _units(text) <= limit:
        return text
    while _units(text) > limit - _units(_CUT):
        # At most two units a character: half of the surplus can go at once.
        text = text[: -max((_units(text) - limit) // 2, 1)]
    return text + _CUT


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", errors="replace")) // 2
