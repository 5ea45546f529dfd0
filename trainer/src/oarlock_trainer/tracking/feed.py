"""A tracker's own thread: what it is given waits in a queue with a bound, and training waits for nothing.

A tracker that fails is told of once, and tried again every minute; figures wait meanwhile, up to the bound of the queue,
and later ones are lost. So an outage that is short costs nothing, and one that lasts costs figures, never a step.
"""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING

from oarlock_trainer.runtime import channel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from oarlock_trainer.tracking.tracker import Tracker

BOUND = 4096
"""Steps: hours of training, and a few megabytes."""
PAUSE = 60.0
"""Seconds between two tries."""


class Feed:
    """Gives one tracker what it is to write, in order."""

    def __init__(
        self, name: str, open_tracker: Callable[[], Tracker], *, bound: int = BOUND, pause: float = PAUSE
    ) -> None:
        """`name` of the entry of training.tracking. Starts the thread, in which the tracker is opened."""
        self._name = name
        self._open = open_tracker
        self._pause = pause
        self._waiting: queue.Queue[tuple[int, Mapping[str, float]] | None] = queue.Queue(bound)
        self._ending = threading.Event()
        self._done = False
        self._failing = False
        self._lost = False
        self._thread = threading.Thread(target=self._run, name=f"tracking {name}", daemon=True)
        self._thread.start()

    def put(self, step: int, figures: Mapping[str, float]) -> None:
        """Let the tracker write these in its own time."""
        try:
            self._waiting.put_nowait((step, figures))
        except queue.Full:
            self._lost = True

    def end(self, *, done: bool) -> None:
        """Nothing more comes; a tracker that fails now is not tried again. `done`: the run is."""
        self._done = done
        self._ending.set()
        try:
            self._waiting.put_nowait(None)
        except queue.Full:
            self._lost = True  # it is left behind

    def join(self, seconds: float) -> None:
        """Wait that long for what is not written yet; say it where something never will be."""
        self._thread.join(max(seconds, 0.0))
        if self._thread.is_alive() or self._lost:
            channel.tell(f"tracking {self._name}: some figures were not written; metrics.jsonl has them")

    def _run(self) -> None:
        tracker: Tracker | None = None
        item = self._waiting.get()
        while True:
            try:
                tracker = tracker or self._open()
                if item is None:
                    tracker.close(done=self._done)
                    return
                tracker.log(*item)
            except Exception as error:  # noqa: BLE001 - whatever a tracker does, training goes on
                self._failed(error)
                if self._ending.wait(self._pause):
                    self._lost = True
                    return
                continue
            self._failing = False
            item = self._waiting.get()

    def _failed(self, error: Exception) -> None:
        if not self._failing:
            self._failing = True
            channel.tell(f"tracking {self._name} fails, and training goes on: {type(error).__name__}: {error}")
