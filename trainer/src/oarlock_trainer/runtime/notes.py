"""Notes that the nodes of one attempt leave for one another below the output, where no network between them is needed.

One small file for each node, written whole or not at all, and overwritten by the next attempt. A note of another attempt
is none: it may be another machine's.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from typing import TYPE_CHECKING, Any

from oarlock_api.contract.wire import WireError, parse_object

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_MAX_BYTES = 4096


class Notes:
    """The notes in one folder, seen from node `own` of `nodes`. `gang` is what one attempt's nodes have in common."""

    def __init__(self, folder: Path, *, gang: str, own: int, nodes: int) -> None:
        self._folder = folder
        self._gang = gang
        self._own = own
        self._others = [node for node in range(nodes) if node != own]

    def write(self, fields: Mapping[str, Any]) -> None:
        """Leave this node's note. Raises OSError."""
        self._folder.mkdir(parents=True, exist_ok=True)
        fresh = self._folder / f"{self._own}.{secrets.token_hex(4)}.new"
        fresh.write_text(json.dumps({**fields, "gang": self._gang}))
        fresh.replace(self._folder / f"{self._own}.json")

    def read(self) -> dict[int, dict[str, Any]]:
        """The other nodes' notes, as far as they are there and can be read.

        An NFS client that has found a note missing may go on to do so for a minute, unless it changes the folder itself.
        """
        found = {}
        for node in self._others:
            with contextlib.suppress(OSError, WireError):
                path = self._folder / f"{node}.json"
                note = parse_object(path.read_text(errors="replace"), max_bytes=_MAX_BYTES)
                if note.get("gang") == self._gang:
                    found[node] = note
        return found
