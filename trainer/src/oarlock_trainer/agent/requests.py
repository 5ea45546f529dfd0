"""What a person asks of a gang: a checkpoint, a drill, or stacks. One after the other, and a minute between two.

Stacks alone wait for no checkpoint that is under way: a storage on which it hangs may be what they are asked for. Its end is
told no more then: /status has one answer, and it is theirs.

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
        """The newest that was."""
        self._taking: Request | None = None
        """The stacks that are awaited."""
        self._saving: Request | None = None
        """The save or drill whose checkpoint is awaited: one of a later step than `_saves_after`."""
        self._saving_since, self._saves_after = 0.0, 0
        self._not_before = self._no_drill_before = -math.inf
        self._drill: Drill | None = None
        """The newest that was asked for and has ended."""

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
        if request is None or self._taking or now < self._earliest(request.verb):
            return
        if request.verb is Verb.STACKS:
            if self._board.status.phase not in (PodPhase.PREFLIGHT, PodPhase.STANDBY):  # before there are no ranks
                self._begin(request)
                self._taking = request
                self._take_stacks(request.id, now)
        elif done is not None and self._saving is None:
            self._begin(request)
            self._saving, self._saving_since, self._saves_after = request, now, done
            self._signal(_SIGNALS[request.verb])

    def _begin(self, request: Request) -> None:
        self._begun, self._asked = request, None
        self._board.answer(Answered(id=request.id, state=RequestState.ASKED))

    def took_stacks(self, words: str, now: float) -> None:
        """All stacks are there that can be had; `words` say of how many pods."""
        if self._taking:
            self._answer(Answered(id=self._taking.id, state=RequestState.DONE, message=words))
            self._taking, self._not_before = None, now + APART_SECONDS

    def _earliest(self, verb: Verb) -> float:
        return max(self._not_before, self._no_drill_before) if verb is Verb.DRILL else self._not_before

    def hear(self, message: Message, now: float) -> None:
        """Take in what a rank tells of checkpoints: one of a later step than when it was begun is what was asked for."""
        fields, step = message.fields, integer(message.fields.get("step"))
        if message.event == Event.DRILL and step is not None and (seconds := number(fields.get("seconds"))) is not None:
            # Of its own drill the agent knows better: ranks can tell only since when they could have been asked.
            own = self._drill if self._drill and self._drill.step == step else None
            self._board.drilled(own or Drill(step=step, seconds=seconds))
        elif self._saving and message.event == Event.CHECKPOINT and step is not None:
            if step > self._saves_after:
                seconds = now - self._saving_since
                if self._saving.verb is Verb.DRILL:
                    self._drill = Drill(step=step, seconds=seconds)
                saved = Answered(id=self._saving.id, state=RequestState.DONE, step=step, seconds=seconds)
                self._end_save(saved, now)
        elif (
            self._saving
            and fields.get("reason") == Degradation.CHECKPOINT_STORAGE_FULL
            and (words := text(fields.get("message"), 512))
        ):
            self._end_save(Answered(id=self._saving.id, state=RequestState.FAILED, message=words), now)

    def interrupted(self, words: str, now: float) -> None:
        """The ranks start anew: what they were asked for does not come. `words` say why."""
        for request in (self._saving, self._taking):
            if request:
                self._answer(Answered(id=request.id, state=RequestState.FAILED, message=words))
        self._saving = self._taking = None
        self._not_before = max(self._not_before, now)

    def _end_save(self, answered: Answered, now: float) -> None:
        if self._saving and self._saving.verb is Verb.DRILL:
            self._no_drill_before = now + _TRAINED_BETWEEN_DRILLS * (now - self._saving_since)
        self._saving, self._not_before = None, now + APART_SECONDS
        self._answer(answered)

    def _answer(self, answered: Answered) -> None:
        """Tell an end, unless something else was begun since: whoever asked for that waits for its own."""
        if self._begun and self._begun.id == answered.id:
            self._board.answer(answered)
