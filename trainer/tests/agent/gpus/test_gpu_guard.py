"""What the agent makes of what its monitor tells: a real monitor, a pretended driver, and time that the test gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from oarlock_api.contract.health import CircuitState, Health, parse_health
from oarlock_api.contract.log_lines import LogStream
from oarlock_local.patience import eventually
from oarlock_trainer.agent.gpus.gpu_guard import CORROBORATE_SECONDS, ECHO_SECONDS, GpuGuard
from oarlock_trainer.agent.outcome import Outcome
from oarlock_trainer.agent.ranks.local_ranks import LocalRanks
from oarlock_trainer.agent.status.status_board import StatusBoard
from oarlock_trainer.agent.verdict import Verdict
from oarlock_trainer.agent.webhooks.webhooks import Webhooks
from oarlock_trainer.runtime import children

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_pod import GpuPod

BLAMED = Verdict(code=81, summary="rank 1: CUDA error: an illegal memory access was encountered", first_error_rank=1)


class Guarded:
    """A guard over pretended GPUs. Its clock stands where `now` says."""

    def __init__(self, pod: GpuPod) -> None:
        assignment, environment = pod.assignment, pod.environment
        self.gpus = pod.gpus
        self.now = 1000.0
        self.over = self.killed = False
        self.saves = 0
        self._board = StatusBoard(assignment.pod, job_uid="uid-of-job", ranks_per_pod=1, clock=lambda: "")
        nobody = dict.fromkeys(LogStream, lambda _: None)
        ranks = LocalRanks(  # never started
            assignment, environment, program="", warm="", run_directory=pod.folder, keep=nobody
        )
        self.next_outcome = lambda: Outcome(assignment.pod, self._board, pod.folder / "report", ranks=ranks)
        self.outcome = self.next_outcome()
        self.guard = GpuGuard(
            assignment,
            environment,
            board=self._board,
            outcome=self.outcome,
            webhooks=Webhooks.of(assignment, environment),
            save=self._save,
            now=self.now,
        )

    def until(self, fact: Callable[[], object], what: str) -> None:
        """Let the guard work until then; its clock does not move."""
        eventually(lambda: fact() or self._work(), what)

    def _work(self) -> None:
        heeded = self.guard.heed(children.reap(), self.now, checked=True, killed=self.killed)
        self.over = heeded or self.over

    def watched(self) -> None:
        self.until(lambda: self._board.status.health.state == "Healthy", "the GPUs are watched")

    @property
    def health(self) -> Health:
        """As /status has it."""
        return self._board.status.health

    @property
    def blamed(self) -> int | None:
        """Index of the GPU that the verdict names."""
        verdict = self.outcome.verdict
        return verdict.gpu.index if verdict and verdict.gpu else None

    @property
    def message(self) -> str:
        """What /status says last."""
        return self._board.status.message

    @property
    def circuit(self) -> tuple[str, int | None]:
        """What a program may ask: the circuit's state, and the GPU behind it."""
        health = self._board.status.health
        return health.circuit, health.gpu.index if health.gpu else None

    def _save(self) -> None:
        self.saves += 1


@pytest.fixture
def guarded(gpu_pod: GpuPod) -> Guarded:
    return Guarded(gpu_pod)


def test_a_gpu_behind_an_echo_on_its_neighbour_is_the_one_that_is_replaced(guarded: Guarded) -> None:
    guarded.watched()
    guarded.gpus.set("0:xid=74", "0:action=0")
    guarded.until(lambda: guarded.blamed == 0, "the echo is reported at once")
    assert not guarded.over
    guarded.now += 0.9 * ECHO_SECONDS
    assert guarded.guard.seconds_left(guarded.now) > 0
    guarded.gpus.inject(gpu=1, xid=79)
    guarded.until(lambda: guarded.over, "the lost GPU ends the pod")
    assert guarded.outcome.verdict is not None
    assert (guarded.outcome.verdict.code, guarded.outcome.verdict.xid, guarded.blamed) == (80, 79, 1)
    assert guarded.circuit == (CircuitState.OPEN, 1)


def test_the_moment_after_a_contained_fault_is_bounded_and_no_second_one_prolongs_it(guarded: Guarded) -> None:
    guarded.watched()
    guarded.gpus.inject(gpu=0, xid=94)
    guarded.until(lambda: guarded.blamed == 0, "reported")
    began = guarded.now
    guarded.now += ECHO_SECONDS / 2
    guarded.gpus.set("1:xid=13", "1:xid=63")
    guarded.until(lambda: "XID 63" in guarded.message, "both are heard")
    assert guarded.guard.seconds_left(began + ECHO_SECONDS) == 0
    assert guarded.blamed == 0


def test_a_driver_that_wants_the_gpu_out_is_heard_behind_a_fault_that_processes_survive(guarded: Guarded) -> None:
    guarded.watched()
    guarded.gpus.set("1:xid=31")
    guarded.until(lambda: guarded.blamed == 1, "reported")
    assert not guarded.over
    guarded.gpus.set("1:action=1")
    guarded.until(lambda: guarded.over, "the driver's verdict")
    assert guarded.outcome.verdict is not None
    assert guarded.outcome.verdict.code == 80


def test_a_rank_that_blames_its_gpu_gives_the_driver_time_to_speak(guarded: Guarded) -> None:
    guarded.watched()
    guarded.outcome.conclude(BLAMED)
    guarded.guard.heed({}, guarded.now, checked=True)
    assert guarded.guard.seconds_left(guarded.now) == CORROBORATE_SECONDS
    assert guarded.guard.seconds_left(guarded.now + CORROBORATE_SECONDS) == 0
    guarded.gpus.inject(gpu=1, xid=48)
    guarded.until(lambda: guarded.over, "the driver has the last word")
    assert guarded.outcome.verdict is not None
    assert (guarded.outcome.verdict.code, guarded.outcome.verdict.first_error_rank) == (80, 1)


def next_round(guarded: Guarded) -> None:
    guarded.outcome = guarded.next_outcome()
    guarded.guard.judge_by(guarded.outcome, guarded.now)


def test_the_circuit_is_closed_again_for_the_processes_of_the_next_round(guarded: Guarded) -> None:
    guarded.watched()
    guarded.gpus.set("1:xid=94")
    guarded.until(lambda: guarded.circuit == (CircuitState.OPEN, 1), "the fault")
    next_round(guarded)
    guarded.until(lambda: guarded.health.state == "Healthy", "all is well again")
    assert guarded.circuit == (CircuitState.CLOSED, None)
    guarded.now += ECHO_SECONDS
    guarded.gpus.set("0:xid=94")
    guarded.until(lambda: guarded.circuit == (CircuitState.OPEN, 0), "the next round's own fault")


def test_what_had_warned_before_a_fault_is_a_warning_in_the_next_round_too(guarded: Guarded) -> None:
    guarded.watched()
    guarded.gpus.set("0:xid=63")
    guarded.until(lambda: guarded.health.state == "Hold", "it warns")
    guarded.gpus.set("1:xid=94")
    guarded.until(lambda: guarded.health.state == "Faulty", "the fault")
    next_round(guarded)
    guarded.until(lambda: guarded.health.state == "Hold", "it warns still")


@pytest.mark.parametrize("when", ["while they are killed", "just after"])
def test_what_a_driver_says_of_processes_that_were_killed_is_no_fault(guarded: Guarded, when: str) -> None:
    guarded.watched()
    if when == "just after":
        next_round(guarded)
        guarded.now += 0.9 * ECHO_SECONDS
    else:
        guarded.killed = True
    guarded.gpus.set("1:xid=31", "1:xid=63")
    guarded.until(lambda: guarded.health.state == "Hold", "both are heard")
    assert guarded.outcome.verdict is None
    guarded.gpus.inject(gpu=1, xid=79)
    guarded.until(lambda: guarded.over, "a GPU that is lost ends the pod all the same")


def test_a_warning_while_no_rank_runs_asks_the_next_ones_for_a_checkpoint(guarded: Guarded) -> None:
    guarded.watched()
    guarded.killed = True
    guarded.gpus.set("1:xid=63")
    guarded.until(lambda: guarded.health.state == "Hold", "it warns")
    assert guarded.saves == 0
    guarded.killed = False
    next_round(guarded)
    guarded.until(lambda: guarded.saves, "the next ranks are asked")
    assert guarded.saves == 1


def test_which_probes_have_warned_is_told_in_status(guarded: Guarded) -> None:
    guarded.watched()
    assert guarded.health.held == ()
    guarded.gpus.set("1:xid=63")
    guarded.until(lambda: guarded.health.state == "Hold", "it warns")
    assert guarded.health.held == ("xid",)
    assert parse_health(guarded.health.to_fields()) == guarded.health
