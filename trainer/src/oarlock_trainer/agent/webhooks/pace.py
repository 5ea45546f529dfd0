"""How often and how patiently a receiver is written to. Pure: time and chance come in."""

from __future__ import annotations

from dataclasses import dataclass

_LONGEST_DELAY = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """When to give a message up.

    The delays are 1, 2, 4, 8 s, each cut by chance by up to a half, so that a gang's pods do not come back together.
    """

    tries: int = 5
    seconds: float = 60.0
    first_delay: float = 1.0

    def delay(self, tries: int, chance: float, asked: float | None = None) -> float:
        """Seconds until the next try, after so many. `chance` is within 0..1; what the receiver `asked` for outranks it."""
        if asked is not None:
            return asked + chance * self.first_delay
        return min(self.first_delay * 2.0 ** (tries - 1), _LONGEST_DELAY) * (1.0 - chance / 2.0)


RETRIES = RetryPolicy()


class TokenBucket:
    """At most `size` messages at once, and on average that many in `seconds`."""

    def __init__(self, *, size: int = 30, seconds: float = 60.0) -> None:
        self._size = size
        self._rate = size / seconds
        self._tokens = float(size)
        self._at: float | None = None

    def wait(self, now: float) -> float:
        """Seconds until a message may go; 0 = now."""
        self._fill(now)
        return max(1.0 - self._tokens, 0.0) / self._rate

    def take(self, now: float) -> None:
        """Count one message."""
        self._fill(now)
        self._tokens -= 1.0

    def _fill(self, now: float) -> None:
        passed = 0.0 if self._at is None else max(now - self._at, 0.0)
        self._tokens = min(self._tokens + passed * self._rate, float(self._size))
        self._at = now
