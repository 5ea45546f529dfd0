"""A running job's curve has each step, as its leader tells; without it, what the status has."""

from __future__ import annotations

from typing import Any

import pytest
from fake_api import FakeApi
from starlette.testclient import TestClient

from oarlock.cluster import Cluster
from oarlock.errors import ForbiddenError
from oarlock.leader import Leader
from oarlock.web import figures
from oarlock.web.figures import LiveFigures, with_figures
from oarlock_api.contract.figures import Figures
from oarlock_api.contract.reads import StepFigures

CURVE = [{"step": 1, "loss": 1.0}, {"step": 9, "loss": 0.2}]


class Pod:
    """A leader that tells what it is given, and whom nobody may ask where that is nothing."""

    def __init__(self) -> None:
        self.told: tuple[int, list[int]] | None = None
        self.asked: list[int] = []

    def figures(self, since: int = 0) -> tuple[int, list[StepFigures]]:
        self.asked.append(since)
        if self.told is None:
            raise ForbiddenError("pods/portforward is forbidden")
        attempt, steps = self.told
        found = [one for one in steps if one > since]
        return attempt, [
            StepFigures(time=f"2026-11-23T10:00:{step:02d}Z", figures=Figures(step=step, loss=0.5)) for step in found
        ]


@pytest.fixture
def pod(monkeypatch: pytest.MonkeyPatch) -> Pod:
    found = Pod()

    def find(_: Cluster, *, namespace: str, job: str) -> Leader:
        assert (namespace, job) == ("team", "flux")
        return found  # type: ignore[return-value]

    monkeypatch.setattr(figures, "find_leader", find)
    monkeypatch.setattr(figures, "WAIT_SECONDS", 30.0)
    return found


def job() -> dict[str, Any]:
    return {"metadata": {"namespace": "team", "name": "flux", "uid": "u1"}, "status": {"curve": CURVE}}


def steps(live: LiveFigures, monkeypatch: pytest.MonkeyPatch, identity: str = "ada") -> list[tuple[int, int]]:
    """What is known after one more question, that was answered."""
    monkeypatch.setattr(figures, "AGAIN_SECONDS", 0.0)
    live.of(None, identity, job())  # type: ignore[arg-type]
    reading = live._known[(identity, "team", "flux", "u1")].reading
    assert reading is not None
    reading.result(30)
    monkeypatch.setattr(figures, "AGAIN_SECONDS", 1e9)
    return [(row["attempt"], row["step"]) for row in live.of(None, identity, job())]  # type: ignore[arg-type]


def test_only_new_steps_are_asked_for_and_another_attempt_begins_anew(
    pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = LiveFigures()
    pod.told = (1, [3, 4])
    assert steps(live, monkeypatch) == [(1, 3), (1, 4)]
    pod.told = (1, [3, 4, 5])
    assert steps(live, monkeypatch) == [(1, 3), (1, 4), (1, 5)]
    assert 4 in pod.asked
    pod.told = (2, [4, 5, 6])
    assert steps(live, monkeypatch) == [(2, 4), (2, 5), (2, 6)]
    live.close()


def test_what_one_caller_read_is_not_shown_to_another(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    live = LiveFigures()
    pod.told = (1, [3])
    assert steps(live, monkeypatch) == [(1, 3)]
    pod.told = None
    assert steps(live, monkeypatch, "grace") == []
    live.close()


def test_what_was_read_is_shown_no_longer_than_the_right_to_it_was_seen(
    pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = LiveFigures()
    pod.told = (1, [3])
    assert steps(live, monkeypatch) == [(1, 3)]
    pod.told = None
    monkeypatch.setattr(figures, "RIGHTS_SECONDS", 0.0)
    assert steps(live, monkeypatch) == []
    live.close()


def test_the_curve_of_the_status_comes_before_that_of_the_leader() -> None:
    rows = ({"step": 5, "loss": 0.5}, {"step": 6, "loss": 0.4})
    assert [one["step"] for one in with_figures(job(), rows)["status"]["curve"]] == [1, 5, 6]
    assert with_figures(job(), ())["status"]["curve"] == CURVE


def test_the_page_has_the_times_that_the_leader_tells(api: FakeApi, page: TestClient, pod: Pod) -> None:
    api.add_job("flux", "team", status={"phase": "Running", "curve": CURVE})
    pod.told = (1, [3, 4, 5])
    text = page.get("/jobs/team/flux?axis=time").text
    assert "step 5, 2026-11-23 10:00:05: 0.5" in text
