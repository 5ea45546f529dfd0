"""Which nodes reach which over TCP, and which one is cut off, where that can be told."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

Row = dict[int, int | None]
"""What one node found: peer -> milliseconds until the connection stood, None where it never did."""

_AT_ONCE = 64


def listen(address: str, *, backlog: int) -> socket.socket:
    """A socket on a free port of this address. Nobody needs to accept: the kernel completes the connections."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, 0), family=family, backlog=backlog)


def probe(addresses: Mapping[int, tuple[str, int]], *, seconds: float) -> Row:
    """Connect to every peer once, many at a time, each within `seconds`."""
    if not addresses:
        return {}
    with ThreadPoolExecutor(max_workers=min(len(addresses), _AT_ONCE)) as pool:
        times = pool.map(lambda address: _connect(address, seconds), addresses.values())
        return dict(zip(addresses, times, strict=True))


def _connect(address: tuple[str, int], seconds: float) -> int | None:
    began = time.monotonic()
    try:
        socket.create_connection(address, timeout=seconds).close()
    except OSError:
        return None
    return round((time.monotonic() - began) * 1000)


def broken_pairs(rows: Mapping[int, Row]) -> list[tuple[int, int]]:
    """Pairs of nodes of which at least one does not reach the other, or did not say that it does. Pure."""

    def reached(one: int, other: int) -> bool:
        return rows[one].get(other) is not None

    return [(a, b) for a, b in combinations(sorted(rows), 2) if not (reached(a, b) and reached(b, a))]


def cut_off(rows: Mapping[int, Row]) -> list[int]:
    """The nodes that are to blame for the broken pairs, none where that can't be told. Pure.

    Cut off is who does not reach more than half of the others, provided that most nodes are not: of two nodes, or of two
    halves, neither can be told to be the one.
    """
    pairs = broken_pairs(rows)
    others = len(rows) - 1
    blamed = [node for node in sorted(rows) if sum(node in pair for pair in pairs) > others / 2]
    return blamed if len(blamed) < len(rows) / 2 else []
