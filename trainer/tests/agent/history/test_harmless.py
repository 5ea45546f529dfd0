"""Whatever goes wrong in a history or in a log call, the agent goes on: its verdict is what counts."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from oarlock_api.contract.job_file import JobFile
from oarlock_api.contract.log_lines import LogStream
from oarlock_local import patience
from oarlock_trainer.agent import logs, termination
from oarlock_trainer.agent.history.clean_lines import CleanLines
from oarlock_trainer.agent.history.history import History
from oarlock_trainer.agent.history.writer import HistoryWriter
from oarlock_trainer.agent.status.status_board import StatusBoard
from oarlock_trainer.agent.verdict import Verdict
from oarlock_trainer.runtime.assignment import Assignment, Pod

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

POD = Pod(rank=0, job="flux", attempt=1, pod_uid="p", node="n")
REPORT = termination.report_of(Verdict(code=80, summary="GPU 3 fell off the bus", gpu=3), POD, None)


@pytest.fixture
def board() -> StatusBoard:
    return StatusBoard(POD, job_uid="u", ranks_per_pod=1, clock=lambda: "2026-01-01T00:00:00Z")


@pytest.fixture
def history(tmp_path: Path) -> History:
    job = JobFile(
        job="flux",
        namespace="default",
        job_uid="u",
        attempt=1,
        nodes=1,
        gpus_per_node=1,
        output_directory=str(tmp_path),
        training={},
    )
    assignment = Assignment(pod=POD, job=job, master_address="m", master_port=1, simulate_gpus=True)
    return History(assignment, {}, output=tmp_path)


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda history, _: history.streams[LogStream.ERR](b"a line\n"), id="output"),
        pytest.param(lambda history, board: history.observe(board.status, REPORT), id="observe"),
        pytest.param(lambda history, _: history.gathered({0: "n"}), id="gathered"),
        pytest.param(lambda history, _: history.kept_stacks("stacks"), id="stacks"),
        pytest.param(lambda history, board: history.ended(REPORT, board.status), id="ended"),
        pytest.param(lambda history, _: history.close(patience.SECONDS), id="close"),
    ],
)
def test_a_mistake_in_the_history_ends_it_alone_and_is_told_once(
    call: Callable[[History, StatusBoard], None],
    history: History,
    board: StatusBoard,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def mistaken(*_: object, **__: object) -> None:
        raise TypeError("a mistake")

    for owner, name in ((HistoryWriter, "print"), (HistoryWriter, "tell"), (CleanLines, "end")):
        monkeypatch.setattr(owner, name, mistaken)
    for _ in range(2):
        call(history, board)
    assert [record.getMessage() for record in caplog.records] == ["the history ends here, training goes on"]
    history.close(patience.SECONDS)


def test_a_log_call_that_is_wrong_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter())
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    kept: list[str] = []
    logs.also_to(kept.append)
    log = logging.getLogger("oarlock_trainer.agent")
    log.error("%d steps", "many")
    log.error("a line")
    assert kept == ["a line"]
