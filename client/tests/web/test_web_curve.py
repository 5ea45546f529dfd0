"""The curve close up: steps that the agent tells, before them those of the status."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from fake_agent import agent
from fake_api import FakeApi
from starlette.testclient import TestClient

from oarlock.errors import NotNowError
from oarlock.story import Point
from oarlock.web import live_figures
from oarlock.web.drawn.curve import MOST_POINTS, Choice, curve, with_live
from oarlock.web.live_figures import LiveFigures
from oarlock_api.contract.figures import Figures
from oarlock_api.contract.reads import StepFigures, figures_body

PAGE = "/jobs/default/flux/curve"


def steps(first: int, last: int) -> list[StepFigures]:
    return [
        StepFigures(
            time=f"2026-01-01T{step // 3600:02}:{step // 60 % 60:02}:{step % 60:02}Z",
            figures=Figures(step=step, loss=1 / step, seconds_per_step=1.0),
        )
        for step in range(first, last + 1)
    ]


@pytest.fixture
def pod(api: FakeApi) -> Iterator[dict[str, bytes]]:
    early = [{"step": step, "loss": 1 / step, "secondsPerStep": 1.0} for step in range(100, 1001, 100)]
    api.add_job("flux", status={"attempt": 2, "phase": "Running", "curve": early})
    api.add_pod("flux", 2, 0, None)
    with agent(api, "flux-2-0") as paths:
        paths["/figures?since=0"] = figures_body(2, steps(801, 1300)).encode()
        yield paths


@pytest.mark.usefixtures("pod")
def test_steps_of_the_agent_follow_those_of_the_status_that_came_before_them(page: TestClient) -> None:
    text = page.get(PAGE).text
    assert "508 steps, the newest is 1,300" in text
    assert "from 0.01 at step 100 to 0.0007692 at step 1,300" in text
    assert "100 steps, the newest is 1,300" in page.get(PAGE, params={"last": "100"}).text
    assert re.search(r"Loss over time: from 0\.001\d+ at step 801", page.get(PAGE, params={"axis": "time"}).text)


def test_a_caller_without_the_right_sees_the_status_and_which_right_it_takes(
    api: FakeApi, pod: dict[str, bytes], page: TestClient
) -> None:
    assert pod
    api.refusals["/api/v1/namespaces/default/pods/flux-2-0/portforward"] = (403, "pods/portforward is forbidden")
    text = page.get(PAGE).text
    assert "10 steps, the newest is 1,000" in text
    assert "<code>pods/portforward</code>" in text


def test_a_job_that_does_not_run_is_asked_nothing(api: FakeApi, page: TestClient) -> None:
    api.add_job("flux", status={"phase": "Succeeded", "curve": [{"step": 5, "loss": 0.5}]})
    assert "One step, 5." in page.get(PAGE).text
    assert not [path for _, path, _ in api.asked if "/pods" in path]


def test_more_points_than_a_browser_draws_are_thinned_and_that_is_said() -> None:
    points = with_live((), 1, steps(1, 3000))
    body = curve(Choice(namespace="default", job="flux"), points).body
    assert f"{MOST_POINTS:,} of 3,000 steps that are known" in body
    assert with_live([Point(step=7, loss=1.0)], 1, []) == (Point(step=7, loss=1.0),)


def test_steps_that_a_recovery_does_again_are_those_of_the_newest_attempt_and_none_is_lost() -> None:
    status = [Point(step=step, loss=9.0) for step in range(10, 101, 10)]
    joined = with_live(status, 2, steps(51, 60))
    assert [point.step for point in joined] == [10, 20, 30, 40, 50, *range(51, 61)]
    assert {point.attempt for point in joined if point.step > 50} == {2}
    assert with_live(status, 2, []) == tuple(status), "until the new attempt has done a step"


class Leader:
    """Tells the first steps of an attempt."""

    def __init__(self, attempt: int = 1) -> None:
        self.asked, self.attempt = 0, attempt
        self.error: Exception | None = None

    def figures(self) -> tuple[int, list[StepFigures]]:
        self.asked += 1
        if self.error:
            raise self.error
        return self.attempt, steps(1, 3)


def test_figures_are_asked_for_once_in_a_few_seconds_for_each_caller() -> None:
    kept, mine, theirs = LiveFigures(), Leader(), Leader()
    for _ in range(3):
        assert len(kept.of("me", "flux", lambda: mine).steps) == 3  # type: ignore[arg-type, return-value]
    kept.of("you", "flux", lambda: theirs)  # type: ignore[arg-type, return-value]
    assert (mine.asked, theirs.asked) == (1, 1)
    for number in range(2 * live_figures.MOST_JOBS):
        kept.of("me", number, lambda: theirs)  # type: ignore[arg-type, return-value]
    assert len(kept._told) == live_figures.MOST_JOBS


def test_a_pod_that_does_not_answer_is_not_asked_again_by_each_page() -> None:
    kept, leader = LiveFigures(), Leader()
    leader.error = NotNowError("it does not answer")
    for _ in range(3):
        with pytest.raises(NotNowError):
            kept.of("me", "flux", lambda: leader)  # type: ignore[arg-type, return-value]
    assert leader.asked == 1


def test_after_a_recovery_the_new_pod_tells_the_curve_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_figures, "KEPT_SECONDS", -1.0)
    kept, first, second = LiveFigures(), Leader(1), Leader(2)
    assert kept.of("me", "flux", lambda: first, attempt=1).attempt == 1  # type: ignore[arg-type, return-value]
    first.error = NotNowError("gone")
    assert kept.of("me", "flux", lambda: second, attempt=2).attempt == 2  # type: ignore[arg-type, return-value]


def test_a_pod_of_an_earlier_attempt_that_still_answers_is_left_for_that_of_the_newest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live_figures, "KEPT_SECONDS", -1.0)
    kept, found = LiveFigures(), [Leader(1), Leader(1), Leader(2)]
    find: Any = lambda: found.pop(0)  # noqa: E731
    assert [kept.of("me", "flux", find, attempt=2).attempt for _ in range(4)] == [1, 1, 2, 2]
