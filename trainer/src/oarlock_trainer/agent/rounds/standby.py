"""Between two rounds of a pod: its ranks are killed, and nothing of them is left when the next ones start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oarlock_trainer.runtime import children, clock

if TYPE_CHECKING:
    from pathlib import Path

    from oarlock_trainer.agent.hangs.hang_guard import HangGuard
    from oarlock_trainer.agent.history.history import History
    from oarlock_trainer.agent.outcome import Outcome
    from oarlock_trainer.agent.questions import Questions
    from oarlock_trainer.agent.ranks.ranks import Ranks
    from oarlock_trainer.agent.rounds.gang_rounds import GangRounds
    from oarlock_trainer.agent.status.status_board import StatusBoard

CLEARING_SECONDS = 0.02
"""Between two looks whether anything is left of ranks that were killed: nobody tells of the end of their helpers."""
_WORDS = "the ranks start anew"
_ASIDE = "stands by: the gang trains without this pod"


class Standby:
    """Of one agent. `on` from when its ranks are told to go until those of the next round start.

    `aside`: a round runs meanwhile that this pod is not of.
    """

    def __init__(
        self,
        ranks: Ranks,
        rounds: GangRounds,
        *,
        board: StatusBoard,
        history: History,
        questions: Questions,
        output: Path,
    ) -> None:
        self._ranks, self._rounds = ranks, rounds
        self._board, self._history, self._questions, self._output = board, history, questions, output
        self.on = self.clearing = self.aside = False
        self.gone = False
        """Whether the ranks themselves have ended; what they have started may live on."""

    def begin(self, guard: HangGuard, outcome: Outcome, now: float) -> None:
        """End the ranks, tell the leader why, and keep what a hang showed."""
        self.on = self.clearing = True
        hung = guard.answer()
        if hung:
            outcome.conclude(hung)
        if guard.hung:
            _, name = guard.keep(self._output, at=clock.timestamp())
            self._history.kept_stacks(name)
        # What ranks say while they wait to be killed for another node's hang is of those that are killed already.
        if outcome.verdict and (hung or not guard.joined):
            self._rounds.failed(outcome.verdict)
        self._questions.interrupted(_WORDS, now)
        self._board.start_anew(_WORDS)
        self._ranks.clear()

    def advance(self) -> None:
        """Kill what the ranks have left behind, and say once when nothing is left: the next order may have come since."""
        if self.clearing and self.gone and children.kill_others():
            self.clearing = False
            self._rounds.cleared()

    def step_aside(self) -> bool:
        """Whether a round has begun without this pod since the last look: nothing is asked of it before a later one."""
        before, self.aside = self.aside, self.on and not self.clearing and self._rounds.is_aside
        if self.aside and not before:
            self._board.note(_ASIDE)
        return self.aside and not before

    def end(self) -> None:
        """The next round begins: nothing of the one before is known any more."""
        self._ranks.received()  # last words of what nobody knew of
        self._ranks.forget()
        self.on = self.gone = False
