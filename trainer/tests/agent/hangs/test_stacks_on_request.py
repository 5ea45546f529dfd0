"""Stacks that somebody asks for: of all ranks, also of such as are stuck; bounded, told, and nothing ends for it."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_api.contract.history import HISTORY, STACKS
from oarlock_local import patience
from oarlock_local.patience import eventually
from oarlock_trainer.agent.hangs import stacks_on_request
from oarlock_trainer.agent.hangs.hang_guard import ANSWER_SECONDS
from oarlock_trainer.agent.hangs.stacks_on_request import KEPT, OTHERS_SECONDS, StacksOnRequest
from oarlock_trainer.agent.link.protocol import Answer, Ask, Topic

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

AT = "2026-01-01T00:00:00Z"


class Pod:
    """An agent's part of it, with ranks that write, a link and a history that remember."""

    def __init__(self, rank: int, output: Path, *, nodes: int = 3) -> None:
        pod, job = SimpleNamespace(rank=rank, attempt=1), SimpleNamespace(job_uid="uid-1")
        self.written, self.asked, self.said, self.told = "", 0, [], []
        self.numbers = range(rank, rank + 1)
        self.pods: Sequence[int] = range(nodes)
        parts: dict[str, Any] = {"ranks": self, "link": self, "history": self}
        self.stacks_on_request = StacksOnRequest(SimpleNamespace(pod=pod, job=job), output=output, **parts)  # type: ignore[arg-type]

    def ask_stacks(self, _numbers: object) -> None:
        self.asked += 1
        self.written += f"stack {self.asked}"

    def forget_stacks(self) -> None:
        self.written = ""

    def stacks(self, numbers: range) -> dict[int, str]:
        return dict.fromkeys(numbers, self.written)

    def ask(self, question: Ask) -> None:
        self.said.append(question)

    def answer(self, answer: Answer) -> None:
        self.said.append(answer)

    def took_stacks(self, files: list[str], message: str) -> None:
        self.told.append((list(files), message))


@pytest.fixture
def output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(stacks_on_request.clock, "timestamp", lambda: AT)
    return tmp_path


def writers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "stacks-on-request"]


def test_rank_0s_agent_asks_all_others_and_is_done_when_all_have_answered(output: Path) -> None:
    pod = Pod(0, output)
    taking = pod.stacks_on_request
    taking.begin("mine", 100.0)
    assert pod.said == [Ask(Topic.STACKS, "mine")]
    assert taking.advance(100.0 + ANSWER_SECONDS - 0.1) is None, "its own ranks have a moment"
    taking.answered(Answer(Topic.STACKS, "mine", "stacks/1-uid-1-1-t.txt", 1))
    taking.answered(Answer(Topic.STACKS, "other", "stacks/none.txt", 2))
    assert taking.advance(100.0 + ANSWER_SECONDS) is None
    taking.answered(Answer(Topic.STACKS, "mine", "stacks/1-uid-1-2-t.txt", 2))
    words = taking.advance(103.0)
    assert words == "stacks of the ranks of 3 of 3 pods are in their logs and in the history"
    assert [len(files) for files, _ in pod.told] == [3]
    assert taking.advance(1e6) is None, "once"


def test_who_does_not_answer_is_named_and_not_waited_for(output: Path) -> None:
    pod = Pod(0, output)
    pod.stacks_on_request.begin("mine", 100.0)
    assert pod.stacks_on_request.advance(100.0 + ANSWER_SECONDS) is None
    words = pod.stacks_on_request.advance(100.0 + OTHERS_SECONDS)
    assert words is not None
    assert words.endswith("1 of 3 pods are in their logs and in the history; no answer from pods 1, 2")


def test_a_pod_that_has_no_place_in_the_round_is_not_waited_for(output: Path) -> None:
    pod = Pod(0, output)
    pod.pods = (0, 3)
    pod.stacks_on_request.begin("mine", 100.0)
    pod.stacks_on_request.answered(Answer(Topic.STACKS, "mine", "stacks/1-uid-1-3-t.txt", 3))
    words = pod.stacks_on_request.advance(100.0 + ANSWER_SECONDS)
    assert words == "stacks of the ranks of 2 of 2 pods are in their logs and in the history"


def test_another_agent_answers_with_the_name_of_its_file_and_asks_nobody(output: Path) -> None:
    pod = Pod(2, output)
    pod.stacks_on_request.begin("mine", 100.0)
    assert pod.stacks_on_request.advance(102.0) is None
    (answer,) = pod.said
    assert (answer.topic, answer.name) == (Topic.STACKS, "mine")
    path = output / HISTORY / answer.words
    eventually(path.exists, "the file")
    assert pod.told == []


def test_a_request_has_its_own_stacks_alone_and_few_files_are_kept(
    output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = Pod(0, output, nodes=1)
    for number in range(KEPT + 3):
        monkeypatch.setattr(
            stacks_on_request.clock, "timestamp", lambda number=number: f"2026-01-01T00:00:{number:02}Z"
        )
        pod.stacks_on_request.begin(str(number), 100.0)
        assert pod.stacks_on_request.advance(102.0)
        path = output / HISTORY / pod.told[-1][0][0]
        eventually(lambda path=path: path.exists() and path.read_text(), "the file")
        assert path.read_text() == f"rank 0:\nstack {number + 1}\n"
        eventually(lambda: not writers(), "its writer's end")
    eventually(lambda: len(list((output / HISTORY / STACKS).iterdir())) == KEPT, "the older ones go")


def test_on_a_storage_that_hangs_no_second_writer_is_started_and_no_file_is_named(
    output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    monkeypatch.setattr(stacks_on_request, "_write", lambda *_: answers.wait(patience.SECONDS))
    pod = Pod(0, output, nodes=1)
    try:
        for number in range(3):
            pod.stacks_on_request.begin(str(number), 100.0)
            words = pod.stacks_on_request.advance(102.0)
        assert len(writers()) == 1
        assert pod.told[-1][0] == []
        assert words == (
            "stacks of the ranks of 1 of 1 pods are in their logs, of 0 in the history: the others' storage does not answer"
        )
    finally:
        answers.set()
        eventually(lambda: not writers(), "the writer's end")
