"""A gang that is asked to save: once for each id, a minute apart, and it says what came of it."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from oarlock_api.contract import gang_key
from oarlock_api.contract.requests import MEANT, Answered, Drill, Request, RequestState, Verb
from oarlock_api.contract.status import Degradation, PodPhase, parse_status
from oarlock_local import patience
from oarlock_trainer.agent import requests
from oarlock_trainer.agent.requests import Requests
from oarlock_trainer.agent.status.access import StatusAccess
from oarlock_trainer.agent.status.status_board import StatusBoard
from oarlock_trainer.agent.status.status_server import StatusServer
from oarlock_trainer.runtime.assignment import Pod
from oarlock_trainer.runtime.channel import DRILL_SIGNAL, SAVE_SIGNAL, Event, Message

SAVE, DRILL = Request(Verb.SAVE, "one"), Request(Verb.DRILL, "two")


class Ranks:
    """Ranks that train, and an agent that hears them."""

    def __init__(self) -> None:
        pod = Pod(job="flux", pod_uid="p", node="n", rank=0, attempt=1)
        self.board = StatusBoard(pod, job_uid="u", ranks_per_pod=1, clock=lambda: "2026-01-01T00:00:00Z")
        self.signals: list[int] = []
        self.stacks: list[tuple[str, float]] = []
        self.requests = Requests(self.board, self.signals.append, lambda *asked: self.stacks.append(asked))
        self.told: Answered | None = None

    def tell(self, event: Event, at: float = 0.0, **fields: Any) -> None:
        message = Message(event, 0, fields)
        self.board.apply(message)
        self.requests.hear(message, at)

    def asked(self, request: Request, *, at: float) -> list[int]:
        """The signals since, after the operator has asked twice."""
        self.signals.clear()
        for _ in range(2):
            self.told = self.requests.ask(request)
            self.requests.advance(at)
        return self.signals

    @property
    def answer(self) -> tuple[str, str, int | None, float | None]:
        answered = self.board.status.request
        assert answered is not None
        return answered.id, answered.state, answered.step, answered.seconds


@pytest.fixture
def ranks() -> Ranks:
    made = Ranks()
    made.tell(Event.STEP, step=10, total=100)
    return made


def test_a_request_is_begun_once_and_answered_by_the_first_checkpoint_of_a_later_step(ranks: Ranks) -> None:
    assert ranks.asked(SAVE, at=5.0) == [SAVE_SIGNAL]
    ranks.tell(Event.CHECKPOINT, at=6.0, step=10, path="/p", savedAt="t")
    assert ranks.answer == ("one", RequestState.ASKED, None, None), "that one was on its way before"
    ranks.tell(Event.CHECKPOINT, at=8.5, step=11, path="/p", savedAt="t")
    assert ranks.answer == ("one", RequestState.DONE, 11, 3.5)
    assert ranks.asked(SAVE, at=500.0) == [], "the operator has not heard the answer yet"


def test_ranks_that_have_made_no_step_are_asked_once_they_have() -> None:
    ranks = Ranks()
    assert ranks.asked(SAVE, at=0.0) == []
    assert ranks.told == Answered(id="one", state=RequestState.ASKED), "heard at once, however long it waits"
    ranks.tell(Event.STEP, step=1, total=100)
    assert ranks.asked(SAVE, at=1.0) == [SAVE_SIGNAL]


def test_stacks_are_asked_for_though_no_step_was_made_and_answered_when_they_are_there() -> None:
    ranks, request = Ranks(), Request(Verb.STACKS, "three")
    assert ranks.asked(request, at=1.0) == []
    assert ranks.stacks == [], "there are no ranks yet"
    ranks.board.enter(PodPhase.STARTING)
    assert ranks.asked(request, at=2.0) == [], "no signal that asks for a checkpoint"
    assert ranks.stacks == [("three", 2.0)]
    ranks.tell(Event.CHECKPOINT, at=2.5, step=11, path="/p", savedAt="t")
    assert ranks.answer[:2] == ("three", RequestState.ASKED)
    ranks.requests.took_stacks("of 2 of 2 pods", 3.0)
    assert ranks.answer == ("three", RequestState.DONE, None, None)
    assert ranks.asked(Request(Verb.STACKS, "four"), at=4.0) == []
    assert ranks.stacks == [("three", 2.0)], "a minute apart, as all requests are"
    ranks.asked(Request(Verb.STACKS, "four"), at=3.0 + requests.APART_SECONDS)
    assert len(ranks.stacks) == 2


@pytest.mark.parametrize("under_way", [SAVE, DRILL])
def test_stacks_are_taken_beside_a_save_that_hangs(ranks: Ranks, under_way: Request) -> None:
    ranks.board.enter(PodPhase.TRAINING)
    ranks.asked(under_way, at=0.0)
    ranks.asked(Request(Verb.STACKS, "three"), at=1.0)
    assert ranks.stacks == [("three", 1.0)]
    ranks.tell(Event.CHECKPOINT, at=70.0, step=11, path="/p", savedAt="t")
    assert ranks.answer[:2] == ("three", RequestState.ASKED), "the operator waits for the stacks alone"
    ranks.requests.took_stacks("of 2 of 2 pods", 71.0)
    assert ranks.answer[:2] == ("three", RequestState.DONE)


def test_stacks_let_no_second_save_begin_and_no_drill_sooner(ranks: Ranks) -> None:
    ranks.board.enter(PodPhase.TRAINING)
    ranks.asked(DRILL, at=0.0)
    ranks.asked(Request(Verb.STACKS, "three"), at=1.0)
    ranks.requests.took_stacks("of 2 of 2 pods", 3.0)
    assert ranks.asked(SAVE, at=65.0) == [], "the drill still goes on"
    ranks.tell(Event.CHECKPOINT, at=70.0, step=11, path="/p", savedAt="t")
    ranks.tell(Event.DRILL, at=70.0, step=11, seconds=71.5)
    assert ranks.board.status.drill == Drill(step=11, seconds=70.0)
    again = Request(Verb.DRILL, "four")
    assert ranks.asked(again, at=769.9) == []
    assert ranks.asked(again, at=770.0) == [DRILL_SIGNAL]


def test_stacks_that_come_when_nobody_asks_for_them_end_no_other_request(ranks: Ranks) -> None:
    ranks.asked(SAVE, at=0.0)
    ranks.requests.took_stacks("late", 1.0)
    assert ranks.answer[:2] == ("one", RequestState.ASKED)


def test_the_next_request_is_begun_a_minute_after_the_one_before(ranks: Ranks) -> None:
    ranks.asked(SAVE, at=0.0)
    ranks.tell(Event.CHECKPOINT, at=1.0, step=11, path="/p", savedAt="t")
    assert ranks.asked(DRILL, at=2.0) == []
    assert ranks.told == Answered(id="two", state=RequestState.ASKED), "heard at once, however long it waits"
    assert ranks.answer == ("one", RequestState.DONE, 11, 1.0), "whoever asked for that one still hears of it"
    assert ranks.asked(DRILL, at=requests.APART_SECONDS + 0.9) == []
    assert ranks.asked(DRILL, at=requests.APART_SECONDS + 1.0) == [DRILL_SIGNAL]


def test_drills_that_are_asked_for_again_and_again_leave_ten_times_their_seconds_to_training(ranks: Ranks) -> None:
    ranks.asked(DRILL, at=0.0)
    ranks.tell(Event.CHECKPOINT, at=70.0, step=11, path="/p", savedAt="t")
    again = Request(Verb.DRILL, "three")
    assert ranks.asked(again, at=769.9) == []
    assert ranks.asked(again, at=770.0) == [DRILL_SIGNAL]


def test_a_save_does_not_wait_as_long_as_a_drill_after_a_drill(ranks: Ranks) -> None:
    ranks.asked(DRILL, at=0.0)
    ranks.tell(Event.CHECKPOINT, at=70.0, step=11, path="/p", savedAt="t")
    assert ranks.asked(SAVE, at=129.9) == []
    assert ranks.asked(SAVE, at=130.0) == [SAVE_SIGNAL]


def test_a_request_that_is_begun_while_it_is_asked_again_is_served_once(ranks: Ranks) -> None:
    turns = [1000.0]

    class Compared(str):
        """An id; while the server's thread looks at it, the agent's loop turns."""

        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            for at in turns[:1]:
                turns.clear()
                ranks.requests.advance(at)
            return str(self) == other

        def __ne__(self, other: object) -> bool:
            return not self == other

        __hash__ = str.__hash__

    ranks.asked(SAVE, at=0.0)
    ranks.tell(Event.CHECKPOINT, at=1.0, step=11, path="/p", savedAt="t")
    ranks.asked(DRILL, at=2.0)
    ranks.requests.ask(Request(Verb.DRILL, Compared("two")))
    ranks.requests.advance(1000.0)
    ranks.tell(Event.CHECKPOINT, at=1001.0, step=12, path="/p", savedAt="t")
    ranks.requests.advance(9000.0)
    assert ranks.signals == [DRILL_SIGNAL]


def test_the_very_answer_to_a_request_names_it(ranks: Ranks) -> None:
    port = StatusServer(
        port=0, job="flux", status=lambda: ranks.board.status, alive=lambda: True, ask=ranks.requests.ask
    ).port
    question = urllib.request.Request(f"http://127.0.0.1:{port}/status?request=save.one", headers={MEANT: "1"})
    with urllib.request.urlopen(question, timeout=patience.SECONDS) as answer:  # noqa: S310
        told = parse_status(answer.read().decode())
    assert told.request == Answered(id="one", state=RequestState.ASKED)
    ranks.requests.advance(0.0)
    assert ranks.signals == [SAVE_SIGNAL]


def test_a_drill_that_was_asked_for_is_timed_from_the_request_and_another_by_the_ranks(ranks: Ranks) -> None:
    ranks.asked(DRILL, at=5.0)
    ranks.tell(Event.CHECKPOINT, at=9.0, step=12, path="/p", savedAt="t")
    ranks.tell(Event.DRILL, at=9.0, step=12, seconds=4.9)
    assert ranks.board.status.drill == Drill(step=12, seconds=4.0)
    ranks.tell(Event.CHECKPOINT, at=99.0, step=20, path="/p", savedAt="t")
    ranks.tell(Event.DRILL, at=99.0, step=20, seconds=3.0)
    assert ranks.board.status.drill == Drill(step=20, seconds=3.0)


def test_a_storage_without_room_is_the_end_of_a_request(ranks: Ranks) -> None:
    ranks.asked(SAVE, at=0.0)
    ranks.tell(Event.DEGRADED, reason=Degradation.CHECKPOINT_STORAGE_FULL, message="")
    assert ranks.answer[1] == RequestState.ASKED
    ranks.tell(Event.DEGRADED, reason=Degradation.CHECKPOINT_STORAGE_FULL, message="no room")
    assert ranks.answer[1] == RequestState.FAILED
    assert ranks.board.status.request is not None
    assert ranks.board.status.request.message == "no room"


KEY = b"k" * 32


def signed(request: str = "", *, ago: float = 0.0) -> str:
    """A question as the operator asks it: good for five minutes, so it is made in the test that asks it."""
    return gang_key.question(KEY, "/status", pod_uid="p", now=time.time() - ago, request=request)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        pytest.param(lambda: signed(str(SAVE)), SAVE, id="signed"),
        pytest.param(signed, None, id="none"),
        pytest.param(lambda: signed(str(SAVE)).replace("save.one", "drill.one"), None, id="another verb"),
        pytest.param(lambda: signed(str(SAVE)).replace("&asks=", "&was="), None, id="no proof of its own"),
        pytest.param(lambda: signed(str(SAVE), ago=3600), None, id="old"),
        pytest.param(lambda: "/status?request=save.one", None, id="not signed"),
        pytest.param(lambda: signed("drill." + "x" * 40), Request(Verb.DRILL, "x" * 40), id="the longest"),
    ],
)
def test_only_who_knows_the_gangs_key_may_ask(target: Callable[[], str], expected: Request | None) -> None:
    for host in ("10.0.0.9", "127.0.0.1"):
        assert StatusAccess(KEY, "p").request(target(), host, "localhost:9400", meant=True) == expected


def test_of_a_gang_without_a_key_anybody_may_ask_who_reaches_it() -> None:
    assert StatusAccess().request("/status?request=drill.two", "10.0.0.9", "10.0.0.7:9400", meant=False) == DRILL


@pytest.mark.parametrize(
    ("asked", "meant", "expected"),
    [
        pytest.param("localhost:9400", False, None, id="an image of another site"),
        pytest.param("evil.example:9400", True, None, id="a site whose name leads to 127.0.0.1"),
        pytest.param("localhost:9400", True, DRILL, id="a person"),
        pytest.param("10.0.0.7:9400", True, DRILL, id="an operator whose question a sidecar hands on"),
        pytest.param("[fd00::7]:9400", True, DRILL, id="the same by IPv6"),
    ],
)
def test_no_page_in_a_browser_beside_a_port_forward_asks_a_gang_for_anything(
    asked: str,
    meant: bool,  # noqa: FBT001
    expected: Request | None,
) -> None:
    assert StatusAccess().request("/status?request=drill.two", "127.0.0.1", asked, meant=meant) == expected
