"""Sending to one receiver: a thread of its own, so that a slow receiver holds up neither the caller nor another receiver.

`put` returns at once whatever the receiver does. A message that finds it overloaded or away is tried again, in order,
until its patience is over; one that is refused is not. `close` sends what it can, the most important first, without
waiting out a pause. What was not delivered is counted, and logged by the receiver's name: its address may be a secret.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from oarlock_trainer.agent.webhooks.delivery import Post
from oarlock_trainer.agent.webhooks.outbox import SIZE, Outbox, QueuedMessage
from oarlock_trainer.agent.webhooks.pace import RETRIES, RetryPolicy

if TYPE_CHECKING:
    from oarlock_trainer.agent.webhooks.delivery import Answer
    from oarlock_trainer.agent.webhooks.pace import TokenBucket
    from oarlock_trainer.agent.webhooks.receivers import Receiver

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What became of a receiver's messages: taken, given up, or pushed out of a full queue."""

    sent: int = 0
    lost: int = 0
    dropped: int = 0


class Sender:
    """The thread of one receiver, which starts with the first message. Without a `bucket` there is no limit of ours."""

    def __init__(
        self,
        receiver: Receiver,
        *,
        bucket: TokenBucket | None = None,
        retries: RetryPolicy = RETRIES,
        size: int = SIZE,
    ) -> None:
        self._receiver = receiver
        self._bucket = bucket
        self._retries = retries
        self._post = Post(receiver.address)
        self._outbox = Outbox(size)
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._ends_at: float | None = None
        """Set once: when the pod will not wait any longer."""
        self._tally = Tally()

    @property
    def tally(self) -> Tally:
        """What became of the messages so far."""
        with self._changed:
            return self._tally

    def put(self, message: QueuedMessage) -> None:
        """Have a message sent. Never blocks; after `close` it is dropped."""
        with self._changed:
            gone = message if self._ends_at is not None else self._outbox.put(message)
            if gone is not None:
                self._tally = replace(self._tally, dropped=self._tally.dropped + 1)
            if self._thread is None and self._ends_at is None:
                thread = threading.Thread(target=self._run, name=f"webhook-{self._receiver.name}", daemon=True)
                thread.start()  # where there are no more threads to be had, the next message tries again
                self._thread = thread
            self._changed.notify_all()
        if gone is not None:
            log.warning("webhook %s: its queue is full, a message was dropped", self._receiver.name, extra=_facts(gone))

    def close(self, ends_at: float) -> None:
        """Send the rest until `ends_at` on the monotonic clock. Returns at once; `join` waits."""
        with self._changed:
            if self._ends_at is None:
                self._ends_at = ends_at
            self._changed.notify_all()

    def join(self) -> None:
        """Wait until all is sent or the time is up, and say what was not. A thread within a try is left behind."""
        with self._changed:
            thread, ends_at = self._thread, self._ends_at
        if thread is None or ends_at is None:
            return
        thread.join(max(ends_at - time.monotonic(), 0.0))
        with self._changed:
            left = len(self._outbox) + thread.is_alive()
        if left:
            log.warning("webhook %s: %d messages were not sent before the end", self._receiver.name, left)

    # In the thread

    def _run(self) -> None:
        while (message := self._next()) is not None:
            taken = self._deliver(message)
            with self._changed:
                tally = self._tally
                self._tally = replace(tally, sent=tally.sent + taken, lost=tally.lost + (not taken))

    def _next(self) -> QueuedMessage | None:
        """The message to be sent now, as soon as there is one and the limit allows it; None = it is over."""
        with self._changed:
            while True:
                closing = self._ends_at is not None
                if closing and (not self._outbox or self._seconds_left() <= 0.0):
                    return None
                if self._outbox:
                    now = time.monotonic()
                    wait = self._bucket.wait(now) if self._bucket else 0.0
                    if wait <= 0.0:
                        if self._bucket:
                            self._bucket.take(now)
                        return self._outbox.take(most_important=closing)
                    self._changed.wait(min(wait, self._seconds_left()))
                else:
                    self._changed.wait()

    def _deliver(self, message: QueuedMessage) -> bool:
        give_up_at = time.monotonic() + self._retries.seconds
        tries = 0
        while True:
            tries += 1
            closing = self._ends_at is not None
            answer = self._try(message)
            if answer.taken:
                return True
            delay = self._retries.delay(tries, random.random(), answer.retry_after)  # noqa: S311 - jitter
            over = tries >= self._retries.tries or time.monotonic() + delay > give_up_at
            if over or not answer.worth_another_try or not self._pause(delay, closing=closing):
                log.warning(
                    "webhook %s: a message was not taken: %s",
                    self._receiver.name,
                    answer.words,
                    extra={**_facts(message), "tries": tries},
                )
                return False

    def _try(self, message: QueuedMessage) -> Answer:
        now = time.time()
        return self._post(message.body, self._receiver.headers(message.type, message.body, now), now=now)

    def _pause(self, seconds: float, *, closing: bool) -> bool:
        """Wait, but no longer than until `close` is called. False where the pod ends before the next try.

        `closing`: the last try began after `close`, so the receiver's pause is kept. A try that `close` overtook
        gets another at once, like one whose pause it cut short.
        """
        with self._changed:
            if not closing:
                self._changed.wait_for(lambda: self._ends_at is not None, seconds)
                return self._seconds_left() > 0.0
            if seconds >= self._seconds_left():
                return False
        time.sleep(seconds)
        return True

    def _seconds_left(self) -> float:
        return math.inf if self._ends_at is None else self._ends_at - time.monotonic()


def _facts(message: QueuedMessage) -> dict[str, str]:
    return {"event_type": message.type, "event_level": message.level}
