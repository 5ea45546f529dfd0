"""What a person asks of a gang: a checkpoint, a drill, or stacks. One after the other, and a minute between two.

The operator asks with its question for rank 0's /status, again and again until it hears the end: an id that is known is
nothing new. In a gang without a key whoever reaches the port may ask. So no more is given than a job may do by itself: the
shortest interval between checkpoints that is ever chosen is a minute, too. A drill is worse than a checkpoint, as ranks stand
still: all of them together take less than a tenth of the job's time.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

from oarlock_api.contract.requests import Answered, Drill, RequestState, Verb
from oarlock_api.contract.status import Degradation, PodPhase
from oarlock_api.contract.wire import integer, number, text
from oarlock_trainer.runtime.channel import DRILL_SIGNAL, SAVE_SIGNAL, Event

if TYPE_CHECKING:
    from collections.abc import Callable

    from oarlock_api.contract.requests import Request
    from oarlock_trainer.agent.status.status_board import StatusBoard
    from oarlock_trainer.runtime.channel import Message

APART_SECONDS = 60.0
"""From the end of one to the beginning of the next."""
_TRAINED_BETWEEN_DRILLS = 10
"""Times a drill's seconds, from its end to the beginning of the next drill."""
_SIGNALS = {Verb.SAVE: SAVE_SIGNAL, Verb.DRILL: DRILL_SIGNAL}


class Requests:
    """`signal` asks this pod's ranks; what one of them is asked, all ranks of the gang do at the same step.

    `take_stacks` begins to take those of a request, by its id.
    """

    def __init__(
        self, board: StatusBoard, signal: Callable[[int], None], take_stacks: Callable[[str, float], None]
    ) -> None:
        self._board, self._signal, self._take_stacks = board, signal, take_stacks
        self._heard: deque[Request] = deque(maxlen=1)
        """From the server's threads to the agent's loop."""
        self._asked: Request | None = None
        """The newest that was not begun."""
        self._begun: Request | None = None
        self._begun_at = 0.0
        self._not_before = self._no_drill_before = -math.inf
        self._open = False
        self._open_after: int | None = None
        """The step that was done when a checkpoint was asked for; None: none is awaited."""

    def ask(self, request: Request) -> Answered:
        """Note a request, and say how far it is. Any thread may call it: whether it is new the loop alone decides."""
        self._heard.append(request)
        known = self._board.status.request
        return known if known and known.id == request.id else Answered(id=request.id, state=RequestState.ASKED)

    def advance(self, now: float) -> None:
        """Begin with what was asked, once the ranks train and enough time has passed since the one before."""
        if self._heard:
            self._asked = self._heard.pop()
        if self._asked and self._begun and self._asked.id == self._begun.id:
            self._asked = None
        request, done = self._asked, self._board.status.figures.step
        if request is None or self._open or now < self._earliest(request.verb) or not self._may_begin(request.verb):
            return
        self._begun, self._begun_at, self._open, self._asked = request, now, True, None
        self._board.answer(Answered(id=request.id, state=RequestState.ASKED))
        if request.verb is Verb.STACKS:
            self._take_stacks(request.id, now)
        else:
            self._open_after = done
            self._signal(_SIGNALS[request.verb])

    def took_stacks(self, words: str, now: float) -> None:
        """All stacks are there that can be had; `words` say of how many pods."""
        if self._open and self._begun and self._begun.verb is Verb.STACKS:
            self._end(RequestState.DONE, now, message=words)

    def _may_begin(self, verb: Verb) -> bool:
        """Stacks once there are ranks, all else once they have made a step."""
        status = self._board.status
        return status.phase != PodPhase.PREFLIGHT if verb is Verb.STACKS else status.figures.step is not None

    def _earliest(self, verb: Verb) -> float:
        return max(self._not_before, self._no_drill_before) if verb is Verb.DRILL else self._not_before

    def hear(self, message: Message, now: float) -> None:
        """Take in what a rank tells of checkpoints: one of a later step than when it was begun is what was asked for."""
        fields, step = message.fields, integer(message.fields.get("step"))
        if message.event == Event.DRILL and step is not None and (seconds := number(fields.get("seconds"))) is not None:
            asked = self._board.status.request
            own = (
                asked is not None and self._begun is not None and self._begun.verb is Verb.DRILL and asked.step == step
            )
            # Of its own drill the agent knows better: ranks can tell only since when they could have been asked.
            self._board.drilled(Drill(step=step, seconds=asked.seconds if asked and own and asked.seconds else seconds))
        elif message.event == Event.CHECKPOINT and step is not None:
            if self._open_after is not None and step > self._open_after:
                self._end(RequestState.DONE, now, step=step, seconds=now - self._begun_at)
        elif (
            fields.get("reason") == Degradation.CHECKPOINT_STORAGE_FULL
            and self._open_after is not None
            and (words := text(fields.get("message"), 512))
        ):
            self._end(RequestState.FAILED, now, message=words)

    def _end(
        self,
        state: RequestState,
        now: float,
        *,
        step: int | None = None,
        seconds: float | None = None,
        message: str = "",
    ) -> None:
        self._open, self._open_after = False, None
        self._not_before = now + APART_SECONDS
        if self._begun and self._begun.verb is Verb.DRILL:
            self._no_drill_before = now + _TRAINED_BETWEEN_DRILLS * (now - self._begun_at)
        if self._begun:
            self._board.answer(Answered(id=self._begun.id, state=state, step=step, seconds=seconds, message=message))
