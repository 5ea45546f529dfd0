"""Who may see which list, and by whose credentials its watch runs.

One watch for each list that somebody looks at. It is opened by the first who reads it, as him. Who else reads it sees what
the watch has told only after an own request for the same list was allowed, which is made again every RIGHTS_SECONDS; so
nobody sees by another's rights. Who has not read for LOOK_SECONDS does not look any more: then the watch goes on as another
who does, at its next turn, or ends. There is nothing to sign off, so nothing can be forgotten.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from weakref import WeakSet

from oarlock.errors import ForbiddenError, NotNowError, OarlockError, RefusedError
from oarlock.web.access.caller import Caller
from oarlock.web.watch.bell import Bell
from oarlock.web.watch.feed import GONE, Feed, Snapshot, StaleError, Watched

RIGHTS_SECONDS = 40.0
"""Together with a stream's heartbeat less than a minute: that is how long a right outlives its end."""
LOOK_SECONDS = 45.0
WATCH_SECONDS = 30
"""Of one request; the next one is made as one who looks then."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 15.0
MOST_LISTS, LISTS_EACH = 256, 96
"""Of all, and of those whose watch runs as one person: each has a thread and a connection."""
log = logging.getLogger("oarlock.web")
Clock = Callable[[], float]


@dataclass(slots=True)
class _Look:
    caller: Caller
    allowed: float
    """When his own request was allowed last, by time.monotonic."""
    read: float


class Hub:
    """All lists that somebody looks at. Used by any thread."""

    def __init__(self, *, clock: Clock = time.monotonic, watch_seconds: int = WATCH_SECONDS) -> None:
        self._clock, self._seconds = clock, watch_seconds
        self._lock = threading.Lock()
        self._lists: dict[Watched, _List] = {}

    def read(self, caller: Caller, watched: Watched, bell: Bell | None = None) -> Snapshot:
        """What the list is now, for one who may read it; `bell` rings when it changes.

        Raises OarlockError as the caller's own request would, and NotNowError where too many lists are open.
        """
        while True:
            found = self._list(caller, watched).read(caller, bell)
            if found is not None:
                return found

    def let_go(self, caller: Caller, watched: Watched) -> None:
        """He does not look at a list any more, if there is nothing in it: an address with a name that is none."""
        with self._lock:
            found = self._lists.get(watched)
        if found is not None:
            found.let_go(caller)

    @property
    def open(self) -> list[Watched]:
        """What is watched now."""
        with self._lock:
            return list(self._lists)

    def close(self) -> None:
        """End all watches."""
        with self._lock:
            lists = list(self._lists.values())
        for one in lists:
            one.end()

    def _list(self, caller: Caller, watched: Watched) -> _List:
        with self._lock:
            found = self._lists.get(watched)
            if found is None:
                his = sum(one.person == caller.person for one in self._lists.values())
                if len(self._lists) >= MOST_LISTS or his >= LISTS_EACH:
                    whose = (
                        f"{his} lists are watched for you" if his >= LISTS_EACH else f"{MOST_LISTS} lists are watched"
                    )
                    raise NotNowError(f"{whose} already: close some pages, and try again in a minute")
                found = _List(watched, caller.person, clock=self._clock, seconds=self._seconds, closed=self._closed)
                self._lists[watched] = found
            return found

    def _closed(self, one: _List) -> None:
        with self._lock:
            if self._lists.get(one.watched) is one:
                del self._lists[one.watched]


class _List:
    """One list, its watch's thread, and those who look at it."""

    def __init__(
        self, watched: Watched, person: str, *, clock: Clock, seconds: int, closed: Callable[[_List], None]
    ) -> None:
        """`person`: as whom it is opened."""
        self.watched, self.person = watched, person
        self._clock, self._seconds, self._closed = clock, seconds, closed
        self._lock = threading.Lock()
        self._opening = threading.Lock()  # held while the list is read first, or closed
        self._feed = Feed(watched, self._ring)
        self._looks: dict[str, _Look] = {}
        self._bells: WeakSet[Bell] = WeakSet()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def read(self, caller: Caller, bell: Bell | None) -> Snapshot | None:
        """None where the list was closed in between."""
        if not self._may(caller) and not self._prove(caller):
            return None
        with self._lock:
            look = self._looks.get(caller.identity)
            if look is None:
                return None  # refused in between, by the watch that was his
            look.caller, look.read = caller, self._clock()
            if bell:
                self._bells.add(bell)
        return self._feed.snapshot()

    def let_go(self, caller: Caller) -> None:
        if self._feed.snapshot().objects:
            return
        with self._lock:
            self._looks.pop(caller.identity, None)
        if self._close_unless_looked_at():
            self.end()

    def end(self) -> None:
        self._stop.set()
        self._feed.end()

    def _may(self, caller: Caller) -> bool:
        with self._lock:
            look = self._looks.get(caller.identity)
            return look is not None and self._clock() - look.allowed < RIGHTS_SECONDS

    def _prove(self, caller: Caller) -> bool:
        """Make the caller's own request for the list; False where the list was closed in between. Raises OarlockError."""
        try:
            with self._opening:
                if self._stop.is_set():
                    return False
                if first := self._thread is None:
                    self._feed.load(caller.cluster)
                    self._allow(caller)
                    self._thread = threading.Thread(target=self._run, name=f"watch {self.watched.path}", daemon=True)
                    self._thread.start()
            if not first:
                caller.cluster.get(self.watched.path, limit="1", **self.watched.query())
                self._allow(caller)
        except ForbiddenError:
            self._refuse(caller)
            raise
        finally:
            self._close_unless_looked_at()
        return True

    def _allow(self, caller: Caller) -> None:
        now = self._clock()
        with self._lock:
            self._looks[caller.identity] = _Look(caller, now, now)

    def _refuse(self, caller: Caller) -> None:
        with self._lock:
            self._looks.pop(caller.identity, None)
        self._ring()

    def _watcher(self) -> Caller | None:
        """As whom to watch next; None where nobody looks. The right that was proven last is the surest."""
        now, wall = self._clock(), time.time()
        with self._lock:
            self._looks = {
                name: look
                for name, look in self._looks.items()
                if now - look.read < LOOK_SECONDS and (look.caller.expires is None or wall < look.caller.expires)
            }
            latest = max(self._looks.values(), key=lambda look: look.allowed, default=None)
        return latest.caller if latest else None

    def _run(self) -> None:
        pause = FIRST_PAUSE
        try:
            while not self._close_unless_looked_at():
                caller = self._watcher()
                if caller is None or self._stop.is_set():
                    continue
                self.person = caller.person
                began = time.monotonic()
                try:
                    if not self._feed.loaded:
                        self._feed.load(caller.cluster)
                    self._feed.follow(caller.cluster, seconds=self._seconds)
                    pause = FIRST_PAUSE
                except StaleError:
                    self._feed.forget_place()
                except ForbiddenError:
                    self._refuse(caller)
                except OarlockError as error:
                    if isinstance(error, RefusedError) and error.status == GONE:
                        self._feed.forget_place()
                    else:
                        self._feed.tell(str(error))
                        pause = min(2 * pause, LONGEST_PAUSE)
                if time.monotonic() - began < pause:  # whoever ends watches at once is not asked in a circle
                    self._stop.wait(pause)
        except BaseException:
            log.exception("the watch of %s broke", self.watched.path)
            raise
        finally:
            self.end()
            self._closed(self)
            self._ring()

    def _close_unless_looked_at(self) -> bool:
        """Whether the list is closed: it then takes no reader any more."""
        with self._opening:
            if not self._stop.is_set() and self._watcher() is None:
                self._stop.set()
        if self._stop.is_set():
            self._closed(self)
        return self._stop.is_set()

    def _ring(self) -> None:
        with self._lock:
            bells = list(self._bells)
        for bell in bells:
            bell.ring()
