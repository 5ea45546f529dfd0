"""What a command is about, for a person who waits for it: a line on standard error once that takes longer than a moment.

A command that is quick says nothing. Telling needs a thread, because what takes long may be one import or one request.
"""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOMENT_SECONDS = 1.5
END = " ..."
"""How each line ends."""


@contextmanager
def meanwhile(*, after: float = MOMENT_SECONDS, stream: TextIO | None = None) -> Iterator[Callable[[str], None]]:
    """Call what is yielded with the words for what begins now: they are written if it goes on for `after` seconds.

    Each is told once at most, and none after the block. `stream` is standard error unless given.
    """
    doing, changed, over = "", threading.Condition(), False

    def now(words: str) -> None:
        nonlocal doing
        with changed:
            doing = words
            changed.notify()

    def tell() -> None:
        told = ""
        with changed:
            while not over:
                begun = doing
                if begun == told:
                    changed.wait()
                elif not changed.wait_for(lambda: over or doing != begun, timeout=after):  # noqa: B023 - asked at once
                    (stream or sys.stderr).write(f"{begun}{END}\n")
                    (stream or sys.stderr).flush()
                    told = begun

    teller = threading.Thread(target=tell, name="meanwhile", daemon=True)
    teller.start()
    try:
        yield now
    finally:
        with changed:
            over = True
            changed.notify()
        teller.join()
