"""The pipe that ties a cluster's life to that of its caller.

The caller keeps the writing end. When it dies, however it dies, the kernel closes that end, the supervisor reads the
end of the file and takes the cluster down. A caller who wants the cluster to stay says so (DETACH) before it leaves.
"""

import os
import select
import time
from collections.abc import Callable

from oarlock_local.errors import ClusterError

LINKED = "linked"
"""The caller has made the link between this machine and the cluster."""
DETACH = "detach"
"""The cluster shall outlive the caller."""
END = "end"
"""The cluster shall end now, but its folder stay."""


class Stop(Exception):  # noqa: N818 - it is no error
    """Somebody asked for the end."""


class Abandoned(Exception):  # noqa: N818 - it is no error
    """The caller is gone."""


class Lifetime:
    """The reading end."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor: int | None = descriptor
        self._pending = b""
        os.set_blocking(descriptor, False)

    def read(self) -> list[str]:
        """Take the words that have arrived; raises Abandoned when the caller is gone, Stop when it said END."""
        if self.descriptor is None:
            return []
        try:
            received = os.read(self.descriptor, 4096)
        except BlockingIOError:
            return []
        if not received:
            raise Abandoned
        *lines, self._pending = (self._pending + received).split(b"\n")
        words = [line.decode() for line in lines]
        if END in words:
            raise Stop
        if DETACH in words:
            # Not closed: `unshare` has it open as well, so whoever selects on it must still be able to unregister it.
            self.descriptor = None
        return words

    def wait_until(self, condition: Callable[[], bool], what: str, seconds: float) -> None:
        """Ask for the condition every 20 ms; raises ClusterError with `what` when it stays away, or Abandoned."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise ClusterError(f"{what}: not within {seconds:g} s.")
            if self.descriptor is None:
                time.sleep(0.02)
            elif select.select([self.descriptor], [], [], 0.02)[0]:
                self.read()

    def wait_for(self, word: str) -> None:
        """Wait for the caller to say that word."""
        while self.descriptor is not None:
            select.select([self.descriptor], [], [])
            if word in self.read():
                return
