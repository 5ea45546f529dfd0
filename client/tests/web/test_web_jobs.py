"""The list of jobs: what it says, what it is asked for, and that it goes on by itself."""

from __future__ import annotations

import re
from typing import Any

import pytest
from fake_api import JOBS, FakeApi
from starlette.testclient import TestClient

from oarlock.web import live
from oarlock.web.drawn.sparkline import sparkline

EVIL = "<script>alert(1)</script>"


def job(api: FakeApi, name: str, namespace: str = "team", phase: str = "Running", **status: Any) -> dict[str, Any]:
    return api.add_job(name, namespace, status={"phase": phase, **status})


def test_a_row_says_phase_progress_loss_nodes_restarts_and_the_last_fault(api: FakeApi, page: TestClient) -> None:
    curve = [{"step": step, "loss": 1 / step} for step in range(1, 20)]
    progress = {"step": 1200, "totalSteps": 5000, "loss": 0.125, "secondsPerStep": 2.5, "etaSeconds": 9500}
    summary = {"lastFault": "Hang on node gpu-7"}
    job(api, "flux", progress=progress, curve=curve, ranks={"ready": 2}, restartCount=3, summary=summary)
    text = page.get("/jobs").text
    for said in (">team<", "Running", "1,200 of 5,000 \u00b7 2 h 38 min left", ">0.125<", ">2.5<", ">2/2<", ">3<"):
        assert said in text
    assert "Hang on node gpu-7" in text
    assert 'aria-label="Loss from 1 to 0.05263"' in text
    assert '<time datetime="2026-01-01T00:00:00Z" data-ago>2026-01-01 00:00:00</time>' in text


def test_nothing_that_a_job_says_becomes_markup(api: FakeApi, page: TestClient) -> None:
    job(api, "flux", phase=EVIL, reason=EVIL, message=EVIL, summary={"lastFault": EVIL})
    text = page.get("/jobs", params={"text": EVIL}).text
    assert EVIL not in text
    assert text.count("&lt;script&gt;alert(1)") > 3


@pytest.mark.parametrize(
    ("address", "names"),
    [
        ("/jobs", {"a", "b", "c"}),
        ("/jobs/team", {"a", "b"}),
        ("/jobs?text=TEAM", {"a", "b"}),
        ("/jobs?text=nccl", {"c"}),
        ("/jobs?phase=Failed", {"b"}),
        ("/jobs/team?phase=Running&text=b", set()),
    ],
)
def test_namespace_text_and_phase_are_in_the_address(
    api: FakeApi, page: TestClient, address: str, names: set[str]
) -> None:
    job(api, "a")
    job(api, "b", phase="Failed")
    job(api, "c", "other", summary={"lastFault": "NCCL timeout"})
    text = page.get(address).text
    assert {name for name in "abc" if f">{name}</a>" in text} == names


def test_phases_are_counted_as_the_text_leaves_them_and_lead_to_their_jobs(api: FakeApi, page: TestClient) -> None:
    job(api, "flux-a")
    job(api, "flux-b", phase="Failed")
    job(api, "other", phase="Queued")
    text = page.get("/jobs?text=flux&phase=Failed").text
    links = re.findall(r'<a href="(\?[^"]*)"( aria-current="true")?>(\w+) <strong>(\d+)</strong>', text)
    assert [(address, name, count) for address, _, name, count in links] == [
        ("?text=flux", "All", "2"),
        ("?text=flux&amp;phase=Running", "Running", "1"),
        ("?text=flux&amp;phase=Failed", "Failed", "1"),
    ]
    assert [name for _, current, name, _ in links if current] == ["Failed"]


def test_a_list_without_jobs_says_how_to_start_one(page: TestClient) -> None:
    assert "oarlock submit" in page.get("/jobs/team").text


def test_the_start_is_the_list(page: TestClient) -> None:
    answer = page.get("/")
    assert (answer.status_code, answer.headers["location"]) == (303, "/jobs")


def test_one_outlier_does_not_flatten_a_sparkline() -> None:
    drawn = sparkline([100.0, *(2 - step / 50 for step in range(60))], "Loss") or ""
    heights = {part.split()[1] for part in drawn.partition(' d="')[2].partition('"')[0].split("L")[1:]}
    assert len(heights) > 15


def test_a_change_comes_by_itself_and_only_what_changed(
    api: FakeApi, listen: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "GATHER_SECONDS", 0.05)
    for name in "abc":
        job(api, name)
    stream = listen("/live/jobs")
    first = stream.next()
    assert first.kind == "draw"
    told = {region["id"]: region for region in first.data["regions"]}
    assert told["jobs"]["order"] == ["job/team/a", "job/team/b", "job/team/c"]
    changed = job(api, "b", phase="Failed")
    api.change(f"{JOBS.format('team')}/b", changed)
    told = {region["id"]: region for region in stream.next().data["regions"]}
    assert set(told["jobs"]["html"]) == {"job/team/b"}
    assert "Failed" in told["jobs"]["html"]["job/team/b"]
    assert "order" not in told["jobs"]
    api.change(f"{JOBS.format('team')}/a", None)
    told = {region["id"]: region for region in stream.next().data["regions"]}
    assert told["jobs"] == {"id": "jobs", "html": {}, "order": ["job/team/b", "job/team/c"]}


def test_who_comes_back_is_sent_the_difference(api: FakeApi, listen: Any) -> None:
    for name in "abc":
        job(api, name)
    state = listen("/live/jobs").next().id
    api.change(f"{JOBS.format('team')}/b", job(api, "b", phase="Failed"))
    told = {region["id"]: region for region in listen("/live/jobs", **{"Last-Event-ID": state}).next().data["regions"]}
    assert set(told["jobs"]["html"]) == {"job/team/b"}
