"""A question that many pages ask: asked once, kept as long as it may be, and not asked again at once where it has failed."""

from __future__ import annotations

import threading

import pytest

from oarlock.errors import ForbiddenError, NoClusterError, OarlockError
from oarlock.web import asked
from oarlock.web.asked import Asked
from oarlock.web.busy import BusyError
from oarlock_local import patience


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Question:
    """Counts how often it is asked; fails with `error` where there is one."""

    def __init__(self) -> None:
        self.count = 0
        self.error: OarlockError | None = None

    def __call__(self) -> int:
        self.count += 1
        if self.error:
            raise self.error
        return self.count


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_what_is_known_is_asked_again_once_it_is_old(clock: Clock) -> None:
    question, one = Question(), Asked[int](clock)
    assert one.answer(None, 4.0, question) == 1
    clock.now += 3.9
    assert one.answer(1, 4.0, question) == 1
    clock.now += 0.2
    assert one.answer(1, 4.0, question) == 2


def test_a_failure_is_told_to_all_who_ask_and_not_asked_again_for_ten_seconds(clock: Clock) -> None:
    question, one = Question(), Asked[int](clock)
    question.error = NoClusterError("nobody answers")
    for _ in range(5):
        with pytest.raises(NoClusterError, match="nobody answers"):
            one.answer(None, 4.0, question)
    assert question.count == 1
    clock.now += asked.FAILED_SECONDS
    question.error = None
    assert one.answer(None, 4.0, question) == 2


def test_what_is_known_outlives_a_failure_for_who_takes_it_but_not_a_refusal(clock: Clock) -> None:
    question, one = Question(), Asked[int](clock)
    one.answer(None, 4.0, question)
    clock.now += 10
    question.error = NoClusterError("nobody answers")
    with pytest.raises(NoClusterError):
        one.answer(1, 4.0, question)
    assert one.answer(1, 60.0, question) == 1
    clock.now += asked.FAILED_SECONDS
    question.error = ForbiddenError("not any more")
    for within in (4.0, 60.0):
        with pytest.raises(ForbiddenError):
            one.answer(1, within, question)


def test_an_answer_that_comes_while_somebody_looks_how_it_has_failed_breaks_nothing() -> None:
    class Answered(Asked[int]):
        looks = 0

        @property
        def _error(self) -> OarlockError | None:  # type: ignore[override]
            self.looks += 1
            return NoClusterError("nobody answers") if self.looks < 3 else None

        @_error.setter
        def _error(self, _: OarlockError | None) -> None: ...

    one = Answered(lambda: 0.0)
    one._failed = 0.0
    assert isinstance(one.error, NoClusterError)


def test_who_waits_hears_of_a_timeout_that_was_not_his_own() -> None:
    one = Asked[int]()
    one._asking = asked.Future()
    one._asking.set_exception(TimeoutError("of the socket"))
    with pytest.raises(TimeoutError, match="of the socket"):
        one.answer(None, 4.0, Question())


def test_who_comes_while_it_is_asked_gets_the_same_answer_and_waits_no_longer_than_he_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = Asked[int]()
    asks, may_end = threading.Event(), threading.Event()
    never, answers = Question(), []

    class Watched(asked.Future[int]):
        def result(self, timeout: float | None = None) -> int:
            may_end.set()
            return super().result(timeout)

    def slow() -> int:
        asks.set()
        assert may_end.wait(patience.SECONDS)
        return 7

    first = threading.Thread(target=lambda: answers.append(one.answer(None, 4.0, slow)))
    first.start()
    assert asks.wait(patience.SECONDS)
    with monkeypatch.context() as patch:
        patch.setattr(asked, "WAIT_SECONDS", 0.0)
        with pytest.raises(BusyError, match="try again"):
            one.answer(None, 4.0, never)
    with monkeypatch.context() as patch:
        assert one._asking
        patch.setattr(one._asking, "__class__", Watched)
        assert one.answer(None, 4.0, never) == 7
    first.join(patience.SECONDS)
    assert (answers, never.count) == ([7], 0)
