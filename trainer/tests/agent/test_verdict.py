"""From the endings of ranks to one exit code."""

from __future__ import annotations

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock_trainer.agent.verdict import Ending, Verdict, judge, understand

VICTIM = 82
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
ROOT_CAUSES = st.integers(1, 255).filter(lambda code: code not in {VICTIM, 86}) | st.integers(-64, -1)
CODES = st.integers(0, 255) | st.integers(-64, -1)
ENDINGS = st.lists(st.builds(Ending, rank=st.integers(0, 31), code=CODES, summary=st.text(max_size=20)), min_size=1)


def endings(*codes: int) -> list[Ending]:
    return [Ending(rank=rank, code=code) for rank, code in enumerate(codes)]


@pytest.mark.parametrize(
    ("codes", "code", "rank"),
    [
        pytest.param((0, 0), 0, None, id="all done"),
        pytest.param((86, 86), 86, 0, id="all left on request"),
        pytest.param((0, 86), 86, 1, id="one left before the others were done"),
        pytest.param((82, 86), 86, 1, id="left on request, and a peer noticed"),
        pytest.param((82, 82), 82, 0, id="only victims"),
        pytest.param((0, 82), 82, 1, id="a victim beside a rank that is done"),
        pytest.param((82, 1), 1, 1, id="an exception behind a victim"),
        pytest.param((82, -9), 137, 1, id="a killed rank behind a victim"),
        pytest.param((-11, 1), 139, 0, id="the earlier of two root causes"),
        pytest.param((1, -11), 1, 0, id="the earlier of two root causes, the other way"),
        pytest.param((1, 84), 84, 1, id="storage explains an exception"),
        pytest.param((84, 88), 88, 1, id="fenced explains a storage fault"),
        pytest.param((88, 85), 85, 1, id="configuration above all"),
        pytest.param((86, 85), 85, 1, id="configuration above a request"),
    ],
)
def test_the_decisive_rank_gives_the_exit_code(codes: tuple[int, ...], code: int, rank: int | None) -> None:
    verdict = judge(endings(*codes))
    assert (verdict.code, verdict.first_error_rank) == (code, rank)


@given(ENDINGS)
def test_the_code_is_always_one_that_a_process_can_end_with(seen: list[Ending]) -> None:
    assert 0 <= judge(seen).code <= 255


@given(ENDINGS, ROOT_CAUSES, st.data())
def test_a_victim_never_outranks_a_root_cause(seen: list[Ending], root: int, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(seen)))
    verdict = judge([*seen[:at], Ending(rank=99, code=root), *seen[at:]])
    assert verdict.code not in {0, 82, 86}


@given(ENDINGS)
def test_the_job_is_done_only_when_every_rank_is(seen: list[Ending]) -> None:
    assert (judge(seen).code == 0) == all(ending.code == 0 for ending in seen)


@given(ENDINGS)
def test_a_bad_verdict_names_a_rank_that_ended_badly(seen: list[Ending]) -> None:
    verdict = judge(seen)
    if verdict.code != 0:
        assert any(ending.rank == verdict.first_error_rank and ending.code != 0 for ending in seen)
        assert str(verdict.first_error_rank) in verdict.summary


def test_a_rank_that_was_killed_for_memory_is_told_what_to_raise() -> None:
    verdict = judge([Ending(rank=3, code=-signal.SIGKILL)], out_of_memory_kills=2)
    assert verdict == Verdict(
        code=137,
        first_error_rank=3,
        summary="rank 3 was killed by SIGKILL: out of memory (the kernel killed 2 processes of this container): "
        "raise spec.pod.resources.limits.memory, or lower batchSize or data.tuning.workers",
    )


def test_a_command_of_the_jobs_own_is_called_so_and_told_of_no_field_that_it_does_not_have() -> None:
    killed = judge([Ending(rank=3, code=-signal.SIGKILL)], out_of_memory_kills=1, who="the command")
    assert killed.summary.startswith("the command was killed by SIGKILL: out of memory")
    assert "batchSize" not in killed.summary
    assert judge(endings(0), who="the command").summary == "the command is done"


def test_a_rank_without_last_words_is_described_by_its_code() -> None:
    assert "exit code 7" in judge(endings(7)).summary


@pytest.mark.parametrize("killed_by", [signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGKILL])
def test_a_rank_that_crashes_or_is_killed_takes_nobody_elses_words(killed_by: signal.Signals) -> None:
    ending = Ending(rank=1, code=-killed_by)
    assert understand(ending, ECC) == ending


@pytest.mark.parametrize("code", [-signal.SIGABRT, 1])
def test_a_rank_that_aborts_or_ends_without_a_word_is_understood_by_the_end_of_the_output(code: int) -> None:
    survived = "torch.OutOfMemoryError: CUDA out of memory."
    found = understand(Ending(rank=1, code=code), f"{survived}\nhalving the batch\n{ECC}\n")
    assert found == Ending(rank=1, code=81, summary=ECC)


def test_a_ranks_own_last_words_outrank_the_output() -> None:
    ending = Ending(rank=1, code=1, summary="ValueError: bad caption")
    assert understand(ending, ECC) == ending


def test_a_store_that_resets_a_connection_makes_no_victim() -> None:
    ending = Ending(rank=1, code=1, summary="ConnectionResetError: [Errno 104] Connection reset by peer")
    assert understand(ending, "") == ending
