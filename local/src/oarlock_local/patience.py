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


def eventually(
    fact: Callable[[], Found | None], what: str | Callable[[], str], *, seconds: float = SECONDS, every: float = 0.005
) -> Found:
    """The fact's first true value, looked for `every` so many seconds. Fails with `what`, which may be asked only then."""
    deadline = time.monotonic() + seconds
    while not (found := fact()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what if isinstance(what, str) else what()}")
        time.sleep(every)
    return found
