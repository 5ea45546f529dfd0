"""Where this server has too much to do, or to wait for: 503, and when to ask again."""

from __future__ import annotations

from oarlock.errors import NotNowError

RETRY_SECONDS = 5


class BusyError(NotNowError):
    """Too much is asked of this server at once: whoever asks again soon is answered."""
