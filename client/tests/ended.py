"""How a command of the command line ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Ended(NamedTuple):
    code: int
    out: str
    err: str


Oarlock = Callable[..., Ended]
