"""Work in a thread that nobody has to wait for: what can't be interrupted is left behind."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_LOOK_SECONDS = 0.5

Result = TypeVar("Result")


class Background(Generic[Result]):
    """Starts the work at once."""

    def __init__(self, work: Callable[[], Result]) -> None:
        self._results: list[Result] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        """Whether it has a result or has failed."""
        return not self._thread.is_alive()

    def wait(self, seconds: float | None) -> bool:
        """Wait that long for its end, None = for as long as it takes; whether it has come."""
        self._thread.join(seconds)
        return self.ended

    def join(self, go_on: Callable[[], None]) -> None:
        """Wait for its end. `go_on` is called twice a second meanwhile, and may raise to stop waiting."""
        while not self.wait(_LOOK_SECONDS):
            go_on()

    def result(self) -> Result:
        """What the ended work returned. Raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._results[0]

    def _run(self, work: Callable[[], Result]) -> None:
        # The work, and all that it holds, is gone with its thread.
        try:
            self._results.append(work())
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is asked for
            self._error = error
