"""Stacks of a hang are its own, whatever was asked for before."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any, cast

import pytest

from oarlock_api.contract.history import HISTORY
from oarlock_local import patience
from oarlock_trainer.agent.hangs import hang_guard
from oarlock_trainer.agent.hangs.flight_recorder import FlightRecorder
from oarlock_trainer.agent.hangs.hang_guard import HangGuard
from oarlock_trainer.agent.hangs.stacks import STOPPED
from oarlock_trainer.ranks.rank_host import HostEvent
from oarlock_trainer.runtime.assignment import Pod
from oarlock_trainer.runtime.channel import Event, Message

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

POD = Pod(job="flux", pod_uid="p", node="n", rank=0, attempt=1)


class Ranks:
    """One rank, which hangs at once and answers what it is asked."""

    numbers = range(1)
    has_steady_steps = tells_first_step = True
    dumps_pending = False

    def __init__(self) -> None:
        self.written = ""
        self.signalled: list[int] = []
        self.recorder: FlightRecorder | None = None

    def dumps(self) -> list[Path]:
        return self.recorder.dumps() if self.recorder else []

    def signal(self, number: int) -> None:
        self.signalled.append(number)

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


def hanging(ranks: Ranks) -> HangGuard:
    """A guard that has found its rank hanging, and asked it."""
    guard = HangGuard(POD, cast("Any", ranks), job_uid="u", hang_seconds=1, now=0.0)
    guard.hear(Message(Event.STEP, 0, {"step": 7}))
    guard.advance(2.0)
    assert (guard.silent, guard.allowed) == (2.0, 1.0)
    assert guard.judge()
    guard.ask()
    return guard


def test_nobody_is_waited_for_once_all_have_said_where_they_stand() -> None:
    ranks = Ranks()
    guard = hanging(ranks)
    ranks.written = ""
    assert not guard.answered(2.0)
    assert not guard.answered(3.0)
    ranks.written = "Thread"
    assert not guard.answered(3.1), "it may be writing still"
    ranks.written += " 0x1"
    assert not guard.answered(3.2)
    assert guard.answered(3.3)
    ranks.dumps_pending = True
    assert not guard.answered(3.4), "torch looks for requests once a second"


def test_a_rank_that_waits_in_the_kernel_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hang_guard, "explaining_state", lambda _: "waiting in the kernel for a device or a mount")
    ranks = Ranks()
    guard = hanging(ranks)
    ranks.written = ""
    guard.answered(2.0)
    assert guard.answered(2.1)
    assert not guard.wake(), "no signal wakes it"


def test_a_stopped_rank_is_waited_for_once_it_is_awake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hang_guard, "explaining_state", lambda _: STOPPED)
    ranks = Ranks()
    guard = hanging(ranks)
    ranks.written = ""
    guard.answered(2.0)
    assert guard.answered(2.1), "asleep it says nothing"
    assert guard.wake()
    assert ranks.signalled == [signal.SIGCONT]
    assert not guard.answered(2.2)
    ranks.written = "Thread"
    guard.answered(2.3)
    assert guard.answered(2.4)
    assert not guard.wake(), "once is enough"


def test_a_stopped_rank_whose_stopped_host_tells_of_it_only_when_asked_is_woken_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hang_guard, "explaining_state", lambda pid: STOPPED if pid == 7 else "")
    ranks = Ranks()
    guard = hanging(ranks)
    guard.hear(Message(HostEvent.STARTED, 0, {"pid": 7}))
    assert guard.wake()
    verdict = guard.answer()
    assert verdict
    assert STOPPED in verdict.summary


def test_ranks_that_run_are_not_woken() -> None:
    ranks = Ranks()
    assert not hanging(ranks).wake()
    assert ranks.signalled == []


@pytest.mark.parametrize(("state", "blamed"), [("", None), (STOPPED, 0)])
def test_of_another_nodes_hang_a_node_says_only_what_explains_it(
    monkeypatch: pytest.MonkeyPatch, state: str, blamed: int | None
) -> None:
    monkeypatch.setattr(hang_guard, "explaining_state", lambda _: state)
    ranks = Ranks()
    guard = HangGuard(POD, cast("Any", ranks), job_uid="u", hang_seconds=60, now=0.0)
    guard.hear(Message(Event.STEP, 0, {"step": 7}))
    guard.advance(2.0)
    assert guard.judge() is None
    assert guard.join()
    guard.ask()
    verdict = guard.answer()
    assert guard.hung, "its stacks are kept"
    assert (verdict and verdict.first_error_rank) == blamed
    assert ranks.written


def test_dumps_of_a_hang_are_kept_though_the_next_round_begins_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The storage takes the first hang's dumps only after a second round has hung as well."""
    copy, goes_on = hang_guard.shutil.copyfile, threading.Event()

    def copyfile(source: Path, target: Path) -> None:
        assert goes_on.wait(patience.SECONDS)
        copy(source, target)

    monkeypatch.setattr(hang_guard.shutil, "copyfile", copyfile)
    local, output, ranks = tmp_path / "nccl", tmp_path / "output", Ranks()
    output.mkdir()
    ranks.recorder = FlightRecorder(local, {}, wanted=True)
    keeping = []
    for number in (1, 2):
        guard = HangGuard(POD, cast("Any", ranks), job_uid="u", hang_seconds=1, now=0.0)
        (local / "nccl-trace-rank-0").write_text(f"hang {number}")
        keeping.append(guard.keep(output, at=f"2026-01-01T00:00:0{number}Z"))
        ranks.recorder.forget()
    goes_on.set()
    for (thread, name), number in zip(keeping, (1, 2), strict=True):
        thread.join(patience.SECONDS)
        kept = output / HISTORY / name
        assert kept.with_name(f"{kept.stem}.nccl-trace-rank-0").read_text() == f"hang {number}"
    assert not list(local.iterdir())
