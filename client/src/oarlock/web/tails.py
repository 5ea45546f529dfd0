"""The newest lines of logs that somebody looks at. One reader for each caller and choice of lines; what is kept is bounded.

A log is read as its caller, by requests of his own: nobody else is shown it. Lines are kept in blocks, and the oldest block
goes where there are too many, so that what is shown is always without a gap, and says how much went before it. Who has not
looked for LOOK_SECONDS does not look any more: then the reader ends.
"""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakSet

from oarlock.errors import NotNowError, OarlockError
from oarlock.logs import NOTE, LogLine, instant
from oarlock.readable_log import is_found
from oarlock.web.watch.bell import Bell

BLOCK_LINES, MOST_BLOCKS = 50, 20
"""A thousand lines: what a browser draws at once, and a person scrolls through."""
MOST_CHARACTERS = 400_000
"""Of the blocks that are kept: a thousand lines of 2,000 characters each, in each log that is looked at, are too much."""
LOOK_SECONDS = 45.0
AGAIN_SECONDS = 10.0
"""So long after the end of a log that broke, or that grows elsewhere, the next look reads it anew."""
SWEEP_SECONDS = 5.0
MOST_TAILS, MOST_OF_ONE_PERSON = 64, 8
FIRST_SECONDS, QUIET_SECONDS, NOTED_SECONDS = 1.5, 0.1, 0.5
"""How long a page waits for its first lines, and for so long nothing comes once they are there, or only a note is."""


class Source(Protocol):
    """Where lines come from, such as a Follower."""

    def lines(self) -> Iterator[LogLine]:
        """The lines as they come. Raises OarlockError."""

    def end(self) -> None:
        """Have `lines` end soon."""


@dataclass(frozen=True, slots=True)
class Block:
    """Lines that follow each other. `number` counts blocks from the first that was ever read."""

    number: int
    lines: tuple[LogLine, ...]

    @property
    def characters(self) -> int:
        """Of its lines."""
        return sum(len(line.text) for line in self.lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What is there now. `before`: lines that went. `over`: no more will come; `trouble`: why, if it is no good end.

    `empty`: no line came, found or not.
    """

    blocks: tuple[Block, ...] = ()
    before: int = 0
    over: bool = False
    trouble: str = ""
    empty: bool = False


class Tail:
    """The newest lines of one source. One thread reads it, any thread asks for what is there."""

    def __init__(self, source: Source, find: str = "", *, grows: bool = False, until: str = "") -> None:
        """`find`: only lines with this text, whatever its case; `grows`: whether more may come once it is over.

        `until`: only lines that are not later, RFC 3339 in UTC.
        """
        self._earlier: Tail | None = None
        self._source = source
        self._find = re.compile(re.escape(find), re.IGNORECASE) if find else None
        self._news = threading.Condition()
        self._blocks: deque[Block] = deque()
        self._open: list[LogLine] = []
        self._new: list[LogLine] = []
        """What came since somebody looked last, as it came: ranks' lines are put in order then."""
        self._number = self._before = self._count = 0
        self._characters = self._new_characters = 0
        """Of `_blocks`, and of `_new`."""
        self._until = instant(until) if until else None
        self._over, self._trouble, self._empty = False, "", True
        self._bells: WeakSet[Bell] = WeakSet()
        self._rung = False
        self.grows = grows
        self.looked = self._ended = time.monotonic()
        threading.Thread(target=self._run, name="tail of a log", daemon=True).start()

    def read(self, bell: Bell | None = None) -> Seen:
        """What is there; `bell` rings once when there is more."""
        with self._news:
            self.looked = time.monotonic()
            self._rung = False
            self._order()
            if bell:
                self._bells.add(bell)
            if self._earlier and not self._over:
                return self._earlier.read()
            last = (Block(self._number, tuple(self._open)),) if self._open else ()
            return Seen(
                blocks=(*self._blocks, *last),
                before=self._before,
                over=self._over,
                trouble=self._trouble,
                empty=self._empty,
            )

    def replace(self, earlier: Tail) -> None:
        """Have that one seen, which read the same log before, until this one is over."""
        with self._news:
            if not self._over:
                self._earlier = earlier

    @property
    def is_stale(self) -> bool:
        """Whether it is over and another one may show more."""
        with self._news:
            may_have_more = self._over and (self._trouble or self.grows)
            return bool(may_have_more) and time.monotonic() - self._ended > AGAIN_SECONDS

    def settle(self) -> None:
        """Wait until the first lines are there and no more come, or for so long as a page may wait."""
        until = time.monotonic() + FIRST_SECONDS
        with self._news:
            self._news.wait_for(lambda: self._count or self._over, FIRST_SECONDS)
            while not self._over and time.monotonic() < until:
                # A note that says whose lines follow comes before them.
                if not self._news.wait(NOTED_SECONDS if self._empty else QUIET_SECONDS):
                    return

    def end(self) -> None:
        """Read no more."""
        self._source.end()

    def _run(self) -> None:
        trouble = ""
        try:
            for line in self._source.lines():
                self._empty = self._empty and line.kind == NOTE
                if self._is_wanted(line):
                    self._take(line)
        except OarlockError as error:
            trouble = str(error)
        except BaseException:
            trouble = "The reader of this log broke, and its server has printed more about it."
            raise
        finally:
            with self._news:
                self._over, self._trouble = True, trouble
                self._ended, self._earlier = time.monotonic(), None
                self._tell()

    def _is_wanted(self, line: LogLine) -> bool:
        if self._until and line.time and instant(line.time) > self._until:
            return False
        return line.kind == NOTE or self._find is None or is_found(self._find, line)

    def _take(self, line: LogLine) -> None:
        with self._news:
            self._new.append(line)
            self._count += 1
            self._new_characters += len(line.text)
            if len(self._new) >= BLOCK_LINES * MOST_BLOCKS or self._new_characters > MOST_CHARACTERS:
                self._order()
            self._tell()

    def _order(self) -> None:
        """Put what is new behind what is there, by its times; a line without one stays behind that which it came after."""
        last = ("", "")
        keyed = [(last := instant(line.time) if line.time else last, line) for line in self._new]
        self._new, self._new_characters = [], 0
        for _, line in sorted(keyed, key=lambda one: one[0]):
            self._open.append(line)
            if len(self._open) == BLOCK_LINES:
                block = Block(self._number, tuple(self._open))
                self._blocks.append(block)
                self._characters += block.characters
                self._number += 1
                self._open = []
                while len(self._blocks) > MOST_BLOCKS or self._characters > MOST_CHARACTERS:
                    oldest = self._blocks.popleft()
                    self._before += len(oldest.lines)
                    self._characters -= oldest.characters

    def _tell(self) -> None:
        self._news.notify_all()
        if not self._rung and not self._earlier:
            self._rung = True
            for bell in list(self._bells):
                bell.ring()


class Tails:
    """All that somebody looks at. Used by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tails: dict[tuple[str, str, Hashable], Tail] = {}
        """By person, caller and choice."""
        self._sweeper: threading.Thread | None = None

    def open(self, person: str, caller: str, choice: Hashable, make: Callable[[], Tail]) -> Tail:
        """The tail of what a caller has chosen; a new one has its first lines already. Raises NotNowError: too many.

        What is read anew because it may have grown is seen as it was until that is done: it begins at its beginning.

        `caller` is the identity of credentials, by which a log is read; `person` whose they are, with others of his.
        """
        key = (person, caller, choice)
        with self._lock:
            found = self._tails.get(key)
            if found and not found.is_stale:
                found.looked = time.monotonic()
                return found
            self._tails.pop(key, None)
            self._make_room(person)
            tail = self._tails[key] = make()
            if found and found.grows:
                tail.replace(found)
            if self._sweeper is None:
                self._sweeper = threading.Thread(target=self._sweep, name="tails of logs", daemon=True)
                self._sweeper.start()
        tail.settle()
        return tail

    def close(self) -> None:
        """End them all."""
        with self._lock:
            for tail in self._tails.values():
                tail.end()
            self._tails.clear()

    def _make_room(self, person: str) -> None:
        """End what this person looked at longest ago, where he has too many."""
        own = [key for key in self._tails if key[0] == person]
        if len(own) >= MOST_OF_ONE_PERSON:
            self._tails.pop(min(own, key=lambda key: self._tails[key].looked)).end()
        elif len(self._tails) >= MOST_TAILS:
            raise NotNowError(f"{MOST_TAILS} logs are looked at already: close some pages, and try again in a minute")

    def _sweep(self) -> None:
        while True:
            time.sleep(SWEEP_SECONDS)
            oldest = time.monotonic() - LOOK_SECONDS
            with self._lock:
                for key in [key for key, tail in self._tails.items() if tail.looked < oldest]:
                    self._tails.pop(key).end()
                if not self._tails:
                    self._sweeper = None
                    return
