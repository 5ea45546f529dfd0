"""What people read of a hang, and which rank it is traced to."""

from __future__ import annotations

import pytest

from oarlock_api.contract.report import Report
from oarlock_api.contract.status import PodPhase
from oarlock_trainer.agent.hangs.hang import Hang, Standing
from oarlock_trainer.agent.hangs.hang_verdict import Seen, verdict_of
from oarlock_trainer.agent.hangs.stacks import top_frame


def standing(rank: int, step: int | None = 7, phase: PodPhase = PodPhase.TRAINING) -> Standing:
    return Standing(rank=rank, phase=phase, step=step, silent=60.25, allowed=60.0)


def hang(*ranks: Standing) -> Hang:
    return Hang(overdue=ranks[0], ranks=ranks)


WAITS = Seen(frame="all_reduce (distributed/distributed_c10d.py:2806)")
READS = Seen(frame="take (data/batches.py:147)")
STOPPED = Seen(frame="loop (loop/train.py:80)", state="stopped by a signal")


@pytest.mark.parametrize(
    ("found", "seen", "summary"),
    [
        pytest.param(
            hang(standing(0), standing(1)),
            {},
            "no step for 60.2 s (60 s are allowed): ranks 0, 1 at step 7",
            id="before anybody was asked",
        ),
        pytest.param(
            hang(*map(standing, range(8, 12))),
            {8: WAITS, 9: WAITS, 10: WAITS, 11: STOPPED},
            "no step for 60.2 s (60 s are allowed): ranks 8-10 at step 7, in all_reduce "
            "(distributed/distributed_c10d.py:2806); rank 11 at step 7, stopped by a signal, in loop "
            "(loop/train.py:80)",
            id="three wait for the fourth",
        ),
        pytest.param(
            hang(standing(0, None)),
            {0: Seen()},
            "no first step for 60.2 s (60 s are allowed): rank 0 before the first step",
            id="no first step",
        ),
        pytest.param(
            hang(standing(0, 7, PodPhase.SAVING)),
            {0: READS},
            "no progress in Saving for 60.2 s (60 s are allowed): rank 0 at step 7 (Saving), in take "
            "(data/batches.py:147)",
            id="a save",
        ),
    ],
)
def test_a_hang_is_one_sentence_about_all_ranks(found: Hang, seen: dict[int, Seen], summary: str) -> None:
    verdict = verdict_of(found, seen)
    assert (verdict.code, verdict.summary) == (83, summary)


@pytest.mark.parametrize(
    ("found", "seen", "rank"),
    [
        pytest.param(hang(standing(0), standing(1)), {0: WAITS, 1: READS}, None, id="frames alone blame nobody"),
        pytest.param(hang(standing(0), standing(1)), {0: WAITS, 1: STOPPED}, 1, id="one is stopped"),
        pytest.param(hang(standing(0), standing(1)), {0: STOPPED, 1: STOPPED}, None, id="both are stopped"),
        pytest.param(hang(standing(0), standing(1, 6)), {}, 1, id="one is behind"),
        pytest.param(hang(standing(0), standing(1, None)), {}, 1, id="one has not begun"),
        pytest.param(hang(standing(0, 6), standing(1), standing(2, 6)), {}, None, id="two are behind"),
        pytest.param(hang(standing(0, 6), standing(1)), {1: STOPPED}, 1, id="stopped says more than behind"),
        pytest.param(hang(standing(0)), {0: WAITS}, None, id="a rank alone"),
    ],
)
def test_a_hang_is_traced_to_a_rank_only_where_it_stands_apart(
    found: Hang, seen: dict[int, Seen], rank: int | None
) -> None:
    assert verdict_of(found, seen).first_error_rank == rank


def test_eight_ranks_that_all_stand_elsewhere_fit_into_a_report() -> None:
    seen = {rank: Seen(frame=f"{'f' * 40} ({'d' * 40}/{'n' * 40}.py:{rank})") for rank in range(8)}
    verdict = verdict_of(hang(*map(standing, range(8))), seen)
    report = Report(
        attempt=1, rank=0, pod_uid="u", failure_class="Hang", code=83, detected_at="", summary=verdict.summary
    )
    assert "rank 7 at step 7" in report.to_json()


MAIN = '  File "/app/oarlock_trainer/loop/train.py", line 80 in loop\n  File "/app/run.py", line 3 in main\n'
LOOP = "loop (loop/train.py:80)"
WORKER = '  File "/usr/lib/python3.11/threading.py", line 331 in wait\n'


@pytest.mark.parametrize(
    ("stacks", "frame"),
    [
        pytest.param("", "", id="no answer"),
        pytest.param("Fatal Python error", "", id="something else"),
        pytest.param(f"Current thread 0x7f (most recent call first):\n{MAIN}", LOOP, id="one thread"),
        pytest.param(
            f"Thread 0x7e (most recent call first):\n{WORKER}\nCurrent thread 0x7f (most recent call first):\n{MAIN}",
            LOOP,
            id="the main thread is the last",
        ),
        pytest.param(
            f"Current thread 0x7e (most recent call first):\n{WORKER}\n"
            f"Thread 0x7f [MainThread] (most recent call first):\n{MAIN}",
            LOOP,
            id="whichever took the signal",
        ),
        pytest.param("Current thread 0x7f (most recent call first):\n  <no Python frame>\n", "", id="no frame"),
    ],
)
def test_the_top_frame_is_the_main_threads(stacks: str, frame: str) -> None:
    assert top_frame(stacks) == frame
