"""Figures and pictures, which an agent tells to the pod itself alone."""

from __future__ import annotations

import http.client
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock_api.contract.figures import FIGURES, Figures
from oarlock_api.contract.reads import MAX_BODY, MOST_FIGURES, WITHIN_ONLY, parse_figures_body
from oarlock_api.contract.status import PodStatus
from oarlock_local import patience
from oarlock_trainer.agent.status import access, from_within
from oarlock_trainer.agent.status.access import is_from_here
from oarlock_trainer.agent.status.from_within import FromWithin
from oarlock_trainer.agent.status.recent_figures import RecentFigures
from oarlock_trainer.agent.status.status_server import StatusServer

STATUS = PodStatus(job_uid="u", pod_uid="p", attempt=3, rank=0, phase="Training", heartbeat_at="2026-01-01T00:00:00Z")
PNG = b"\x89PNG\r\n\x1a\n" + bytes(1000)


def figures(step: int) -> Figures:
    return Figures(step=step, total_steps=10**9, loss=1 / (step + 1), seconds_per_step=4.4123456789, learning_rate=1e-4)


@pytest.fixture
def port(tmp_path: Path) -> int:
    recent = RecentFigures()
    for step in range(1, 5):
        recent.add(figures(step), time=f"2026-01-01T00:00:0{step}Z")
    (tmp_path / "output/validation/step-2/thumbs").mkdir(parents=True)
    (tmp_path / "output/validation/index.json").write_text('{"pictures": []}')
    (tmp_path / "output/validation/step-2/boat-64x64.png").write_bytes(PNG)
    (tmp_path / "output/validation/step-2/thumbs/boat-64x64.jpg").write_bytes(b"\xff\xd8\xff")
    (tmp_path / "output/secret.png").write_text("hands off")
    (tmp_path / "output/validation/step-2/link.png").symlink_to(tmp_path / "output/secret.png")
    within = FromWithin(tmp_path / "output", recent, attempt=3)
    return StatusServer(port=0, job="flux", status=lambda: STATUS, alive=lambda: True, within=within).port


def get(port: int, target: str, *, host: str = "localhost", method: str = "GET") -> tuple[int, bytes]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=patience.SECONDS)) as connection:
        connection.request(method, target, headers={"Host": host})
        answer = connection.getresponse()
        return answer.status, answer.read()


def test_figures_after_a_step_come_as_a_table_with_the_times_at_which_they_were_heard(port: int) -> None:
    code, body = get(port, "/figures?since=2")
    attempt, steps = parse_figures_body(body.decode())
    assert (code, attempt) == (200, 3)
    assert [(one.time, one.figures) for one in steps] == [
        ("2026-01-01T00:00:03Z", figures(3)),
        ("2026-01-01T00:00:04Z", figures(4)),
    ]
    assert len(parse_figures_body(get(port, "/figures?since=x")[1].decode())[1]) == 4


@given(st.integers(1, 10_000))
def test_however_long_an_attempt_is_its_figures_are_bounded_even_and_end_with_the_newest_steps(done: int) -> None:
    recent = RecentFigures()
    for step in range(1, done + 1):
        recent.add(figures(step), time="2026-01-01T00:00:00.000Z")
    steps = [one.figures.step or 0 for one in recent.since(0)]
    last = min(done, MOST_FIGURES // 2)
    assert steps[-last:] == list(range(done - last + 1, done + 1))
    assert steps[0] == 1
    assert min(done, MOST_FIGURES // 2) <= len(steps) <= MOST_FIGURES
    apart = [after - before for before, after in pairwise(steps[:-last])]
    assert len(set(apart)) <= 1


@pytest.mark.parametrize(("done", "back"), [(100, 51), (2000, 1900), (5000, 3000), (5000, 1)])
def test_steps_that_ranks_do_again_after_they_went_back_are_told_as_they_are_now(done: int, back: int) -> None:
    """Ranks that start anew inside a living pod go on from its newest state: what came after that is no part of the run."""
    recent = RecentFigures()
    for step in range(1, done + 1):
        recent.add(Figures(step=step, loss=1.0), time="before")
    for step in range(back, back + 10):
        recent.add(Figures(step=step, loss=2.0), time="again")
    told = recent.since(0)
    steps = [one.figures.step or 0 for one in told]
    assert steps == sorted(set(steps))
    assert [one.figures.step for one in told if one.time == "again"] == list(range(back, back + 10)), "none is lost"
    assert steps[-1] == back + 9
    assert [one.figures.step for one in recent.since(back)] == list(range(back + 1, back + 10))


def test_an_answer_with_the_most_steps_can_be_read(tmp_path: Path) -> None:
    recent = RecentFigures()
    for step in range(10**9, 10**9 + MOST_FIGURES // 2):
        recent.add(
            Figures(**(dict.fromkeys(FIGURES, 1.2345678901234567e-300) | {"step": step})),  # type: ignore[arg-type]
            time="2026-01-01T00:00:00.123456Z",
        )
    with FromWithin(tmp_path, recent, attempt=1).answer("/figures") as answer:
        assert answer.length < MAX_BODY / 2


def test_the_index_pictures_and_thumbnails_lie_at_their_names_below_the_output(port: int) -> None:
    assert get(port, "/validation/index.json") == (200, b'{"pictures": []}')
    assert get(port, "/validation/step-2/boat-64x64.png") == (200, PNG)
    assert get(port, "/validation/step-2/thumbs/boat-64x64.jpg") == (200, b"\xff\xd8\xff")
    assert get(port, "/validation/step-2/boat-64x64.png", method="HEAD") == (200, b"")
    assert get(port, "/validation/step-2/cat-64x64.png")[0] == 404


@pytest.mark.parametrize(
    "file",
    [
        "../secret.png",
        "step-2/../../secret.png",
        "step-2/%2e%2e/%2e%2e/secret.png",
        "step-2/link.png",
        "/secret.png",
        "",
    ],
)
def test_no_name_leads_to_another_file(port: int, file: str) -> None:
    code, body = get(port, f"/validation/{file}")
    assert code in {404, 503}
    assert b"hands off" not in body


@pytest.mark.parametrize("target", ["/figures", "/validation/index.json", "/validation/step-2/boat-64x64.png"])
def test_a_stranger_in_the_pod_network_is_told_nothing(port: int, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "is_here", lambda _host: False)
    assert get(port, target) == (403, WITHIN_ONLY.encode())


@pytest.mark.parametrize("host", ["evil.example", "evil.example:9400", "localhost.evil.example", "10.0.0.7:9400"])
def test_a_page_in_a_browser_beside_a_port_forward_is_told_nothing(port: int, host: str) -> None:
    assert get(port, "/validation/index.json", host=host)[0] == 403


def test_who_asks_from_within_may_name_the_loopback_as_he_likes() -> None:
    for host in ("localhost", "localhost:9400", "127.0.0.1:18000", "[::1]:9400", "[::1]", ""):
        assert is_from_here("::ffff:127.0.0.1", host)
    assert not is_from_here("10.0.0.7", "localhost")


@pytest.mark.parametrize("host", ["12345", "evil.example", "evil:9400", "10.0.0.7:9400"])
def test_another_name_than_the_loopbacks_is_nobody_within(host: str) -> None:
    assert not is_from_here("127.0.0.1", host)


@pytest.mark.parametrize("address", ["127.0.0.6", "127.8.9.1", "::ffff:127.0.0.6"])
def test_the_sidecar_of_a_service_mesh_is_not_the_pod_itself(address: str) -> None:
    """Istio's hands everybody's connections on from 127.0.0.6."""
    assert not is_from_here(address, "localhost:9400")


def test_a_storage_that_hangs_keeps_four_answers_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(from_within, "_WAIT_SECONDS", 0.01)
    (tmp_path / "validation").mkdir()
    (tmp_path / "validation/index.json").write_text("{}")
    within = FromWithin(tmp_path, RecentFigures(), attempt=1)
    held = [within.answer("/validation/index.json") for _ in range(5)]
    assert [one.__enter__().code for one in held] == [200, 200, 200, 200, 503]
    for one in held:
        one.__exit__(None, None, None)
    with within.answer("/validation/index.json") as answer:
        assert answer.code == 200


def test_a_file_that_is_too_long_for_a_picture_is_refused_by_its_size(tmp_path: Path) -> None:
    (tmp_path / "validation").mkdir()
    with (tmp_path / "validation/index.json").open("wb") as file:
        file.truncate(2**40)
    with FromWithin(tmp_path, RecentFigures(), attempt=1).answer("/validation/index.json") as answer:
        assert answer.code == 413
