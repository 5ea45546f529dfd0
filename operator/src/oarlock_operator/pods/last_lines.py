"""The last lines of a pod's log or message, as far as they fit into a status: the error stands at the end."""

from __future__ import annotations

from typing import Any

import msgspec


def last_lines(message: str, limit: int = 600) -> str:
    """The end of a log in whole lines, where the error stands; of our own structured lines only what they say."""
    kept: list[str] = []
    for said in map(_said, reversed(message.strip().splitlines())):
        if kept and len(said) > limit:
            break
        kept.append(said[:limit])
        limit -= len(said) + 1
    return "\n".join(reversed(kept)).strip()


def _said(line: str) -> str:
    if not line.startswith("{"):
        return line
    try:
        entry = msgspec.json.decode(line.encode(), type=dict[str, Any])
    except msgspec.MsgspecError:
        return line
    return str(entry.get("event") or line)
