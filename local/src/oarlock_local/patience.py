"""For how long a test waits for a fact that is to come: one bound for all suites, far beyond what any fact needs.

Nobody who waits by it promises anything about time; what is to be quick is measured in bench/. So a wait that ends by it has
found a bug, of the product or of the test, and the bound is not what is to be mended.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Found = TypeVar("Found")

SECONDS = 240.0
"""Of one wait. Less than pytest's own timeout, which ends a test without a word of what it waited for."""
KUBECTL = f"--timeout={SECONDS:g}s"
"""The same, as `kubectl wait` is told."""
_LONGEST_REST = 0.05
"""Seconds between two looks of one wait."""


def eventually(fact: Callable[[], Found | None], what: str | Callable[[], str], *, seconds: float = SECONDS) -> Found:
    """The fact's first true value. Fails with `what`, which may be asked only then.

    It looks less and less often, and rests at least as long as a look took: what is waited for runs on the same cores.
    """
    deadline = time.monotonic() + seconds
    rest = 0.005
    while True:
        began = time.monotonic()
        if found := fact():
            return found
        now = time.monotonic()
        if now > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what if isinstance(what, str) else what()}")
        time.sleep(max(rest, now - began))
        rest = min(1.25 * rest, _LONGEST_REST)
