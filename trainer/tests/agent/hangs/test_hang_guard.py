"""Stacks of a hang are its own, whatever was asked for before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from oarlock_trainer.agent.hangs.hang_guard import HangGuard
from oarlock_trainer.runtime.assignment import Pod
from oarlock_trainer.runtime.channel import Event, Message

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

POD = Pod(job="flux", pod_uid="p", node="n", rank=0, attempt=1)


class Ranks:
    """One rank, which hangs at once and answers what it is asked."""

    numbers = range(1)
    has_steady_steps = tells_first_step = True

    def __init__(self) -> None:
        self.written = ""

    def ask_stacks(self, _numbers: Sequence[int]) -> None:
        self.written += "the hang's"

    def forget_stacks(self) -> None:
        self.written = ""

    def stacks(self, numbers: Iterable[int]) -> dict[int, str]:
        return dict.fromkeys(numbers, self.written)


def test_what_came_too_late_for_a_request_is_no_evidence_of_a_hang(caplog: Any) -> None:
    ranks = Ranks()
    guard = HangGuard(POD, cast("Any", ranks), job_uid="u", hang_seconds=1, now=0.0)
    ranks.written = "the request's "
    guard.hear(Message(Event.STEP, 0, {"step": 7}))
    guard.advance(2.0)
    assert guard.judge()
    guard.ask()
    assert guard.answer()
    assert [record.stacks for record in caplog.records] == ["the hang's"]
