"""Curves and timeline: exact where they are small, bounded where they are large."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pages import Page, hung

from oarlock.explain import explain
from oarlock.report import tables
from oarlock.report.curves import curves
from oarlock.report.markup import element
from oarlock.report.scale import Scale, marks, time_marks
from oarlock.report.timeline import timeline
from oarlock.report.words import duration
from oarlock.story import Attempt, Cordon, Evidence, Now, Place, Point, Round, Stage, Story, Trouble


def story(**more: object) -> Story:
    now = Now(phase="Running", cause="Training", message="", next="")
    return Story(version=1, namespace="team", name="flux", time="2026-11-23T12:00:00Z", now=now, **more)  # type: ignore[arg-type]


def test_text_and_attributes_are_escaped_and_elements_are_not() -> None:
    made = element("p", "a < b & \x00", element("b", 1.5), class_="x\"'", hidden=True, title=None)
    assert made == '<p class="x&quot;&#x27;" hidden>a &lt; b &amp; \ufffd<b>1.5</b></p>'


@pytest.mark.parametrize(
    ("low", "high", "wanted"),
    [
        (0, 10, [0, 2, 4, 6, 8, 10]),
        (0.31, 0.42, [0.32, 0.34, 0.36, 0.38, 0.4, 0.42]),
        (7, 7, [7]),
        (0, 20000, [0, 5000, 10000, 15000, 20000]),
    ],
)
def test_axes_have_round_marks(low: float, high: float, wanted: list[float]) -> None:
    assert marks(low, high) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("seconds", "wanted"),
    [
        (20, ["10:00:00", "10:00:05", "10:00:10", "10:00:15", "10:00:20"]),
        (7200, ["10:00", "10:30", "11:00", "11:30", "12:00"]),
        (4 * 86400, ["Nov 24", "Nov 25", "Nov 26", "Nov 27"]),
    ],
)
def test_axes_of_time_have_round_times(seconds: int, wanted: list[str]) -> None:
    begin = 1795428000  # 2026-11-23T10:00:00Z
    assert [words for _, words in time_marks(begin, begin + seconds, 5)] == wanted


def test_what_lies_beyond_an_axis_lies_at_its_end() -> None:
    scale = Scale(0, 10, 100, 200)
    assert [scale(value) for value in (-5, 0, 5, 10, 50)] == [100, 100, 150, 200, 200]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(4.2, "4.2 s"), (200, "3 min 20 s"), (7500, "2 h 5 min"), (3600, "1 h"), (273600, "3 d 4 h"), (None, "\u2013")],
)
def test_durations_are_told_in_two_units(seconds: float | None, words: str) -> None:
    assert duration(seconds) == words


def test_a_curve_is_one_line_for_each_attempt() -> None:
    points = [
        Point(step=step, loss=loss, attempt=attempt) for step, loss, attempt in ((0, 1.0, 1), (5, 0.5, 1), (10, 0.0, 2))
    ]
    drawn = Page(curves(points))
    (line,) = [one["d"] for one in drawn.all("path")]
    assert line == "M0 14.0L0 14.0L500 102.0M1000 190.0L1000 190.0"
    assert "attempt 2 from step 10" in drawn.texts["title"]
    assert [one["class"] for one in drawn.all("div")] == ["by-step", "drawing", "wide"], "no time is known"


def test_a_step_that_took_very_long_does_not_flatten_the_others() -> None:
    points = [Point(step=step, seconds_per_step=60.0 if step == 1 else 0.5) for step in range(1, 201)]
    drawn = Page(curves(points))
    assert "1 above 1.5 s are marked at the edge" in " ".join(drawn.texts["span"])
    assert [one["class"] for one in drawn.all("path")].count("beyond pace") == 1


def test_a_curve_of_thousands_of_steps_stays_small() -> None:
    points = [
        Point(
            step=step,
            loss=1 / step,
            seconds_per_step=1.0,
            attempt=1 + step // 100,
            time=f"2026-11-23T{10 + step // 60}:{step % 60:02d}:00Z",
        )
        for step in range(1, 513)
    ]
    assert len(curves(points)) < 170_000


def test_the_timeline_says_who_began_when_and_what_befell_whom() -> None:
    drawn = Page(timeline(explain(hung())))
    told = drawn.texts["title"]
    assert "attempt 1, pod 1 on node-2, 2 min 20 s" in told
    assert "first step: 20.0 s" in told
    assert [one for one in told if one.startswith("2026-11-23 10:02:20 Hang: no step for 60.4 s")]
    classes = [one["class"] for one in drawn.all("circle")]
    assert classes == ["fault", "fault", "victim"], "one, and those of the legend"


def test_a_round_that_ended_has_a_mark_that_leads_to_its_row_and_of_many_the_newest_have() -> None:
    def ended(number: int) -> Round:
        time = f"2026-11-23T11:{number:02d}:00Z"
        fault = Trouble(cause="ProcessKilled", message="rank 1 was killed", time=time, attempt=1, rank=1, node="node-2")
        return Round(number=number, fault=fault, resumed_from_step=140, lost_steps=3, down_seconds=2.6)

    attempt = Attempt(
        number=1, start_time="2026-11-23T11:00:00Z", rounds=tuple(ended(number) for number in range(1, 31))
    )
    told = story(attempts=(attempt,))
    marks = [str(one["href"]) for one in Page(timeline(told)).all("a") if "#round" in str(one["href"])]
    assert marks == [f"#round-1-{number}" for number in range(21, 31)]
    table = Page(tables.faults(told))
    rows = [str(one["id"]) for one in table.all("tr") if one.get("id")]
    assert rows == [mark.lstrip("#") for mark in reversed(marks)]
    assert "ranks started anew in their pods from step 140: 3 steps and 2.6 s lost" in table.text
    assert "and 20 earlier rounds of this attempt" in table.text


def test_the_time_between_rounds_and_a_lost_pod_s_old_node_are_drawn_and_told_with_the_attempt() -> None:
    def ended(minute: int, **more: Any) -> Round:
        time = f"2026-11-23T11:{minute:02d}:00Z"
        fault = Trouble(cause="Hang", message="no step", time=time, attempt=1, rank=1, node="node-2")
        return Round(number=minute, fault=fault, resumed_from_step=140, **more)

    attempt = Attempt(
        number=1,
        start_time="2026-11-23T11:00:00Z",
        first_step_time="2026-11-23T11:01:00Z",
        end_time="2026-11-23T11:40:00Z",
        places=(Place(rank=0, node="node-1"), Place(rank=1, node="node-9")),
        node_names=("node-1", "node-9"),
        replaced_node_names=("node-2",),
        rounds=(
            ended(10, lost_steps=3, down_seconds=120.0, silent_seconds=60.0),
            ended(20, lost_steps=5, down_seconds=240.0, replaced=True),
        ),
    )
    told = story(attempts=(attempt,))
    drawn = Page(timeline(told))
    down = [
        (one["x"], one["width"]) for one in drawn.all("rect") if one.get("class") == "start" and one.get("rx") is None
    ]
    assert down == [("0%", "2.5%"), ("22.5%", "5%"), ("50%", "10%")]
    assert "attempt 1, pod 1 on node-9, before on node-2, 40 min" in drawn.texts["title"]
    assert "2 ended: 8 steps done again, 6 min down" in Page(tables.attempts(told)).text
    assert "node-1, node-9; before: node-2" in Page(tables.attempts(told)).text


def test_a_thousand_ranks_in_twenty_attempts_are_a_bounded_page() -> None:
    def trouble(attempt: int, rank: int) -> Trouble:
        cause = "GPUFault" if rank == 7 else "PeerLost"
        evidence = tuple(Evidence(source="probe", text="x" * 1024) for _ in range(8))
        time = f"2026-11-23T{attempt:02d}:50:00Z"
        return Trouble(
            cause=cause, message="m" * 1500, time=time, attempt=attempt, rank=rank, evidence=evidence, next="n" * 500
        )

    attempts = tuple(
        Attempt(
            number=number,
            start_time=f"2026-11-23T{number:02d}:00:00Z",
            first_step_time=f"2026-11-23T{number:02d}:01:00Z",
            end_time=f"2026-11-23T{number:02d}:51:00Z",
            places=tuple(Place(rank=rank, node=f"node-{rank}") for rank in range(1000)),
            stages=(Stage(name="Queue", seconds=20.0), Stage(name="Start", seconds=20.0)),
            faults=tuple(trouble(number, rank) for rank in (7, *range(7), *range(8, 1000))),
            decision="d" * 1000,
        )
        for number in range(1, 21)
    )
    cordons = tuple(Cordon(node=f"node-{place}", time="2026-11-23T05:50:00Z", attempt=5) for place in range(1000))
    told = story(attempts=attempts, cordons=cordons)
    drawn = timeline(told)
    page = Page(drawn)
    assert len(page.all("rect")) + len(page.all("circle")) + len(page.all("path")) < 600
    assert page.text.count("GPUFault") >= 20, "a row of 125 ranks shows its root cause"
    assert len(drawn) < 300_000
    alone = timeline(told, only=5, zoom=lambda attempt: f"?attempt={attempt or ''}")
    assert len(alone) < 100_000
    assert "a row is up to 16 pods" in Page(alone).text
    assert len(tables.faults(told)) < 600_000
    assert "and 993 more pods of this attempt" in tables.faults(told)
    assert len(tables.attempts(told) or "") + len(tables.cordons(cordons) or "") < 100_000


def test_an_attempt_that_made_no_step_is_not_drawn_as_training() -> None:
    failed = Attempt(
        number=1, start_time="2026-11-23T10:00:00Z", end_time="2026-11-23T11:00:00Z", end_reason="PlacementTimeout"
    )
    classes = [one.get("class") for one in Page(timeline(story(attempts=(failed,)))).all("rect")]
    assert classes.count("train") == 1, "in the legend alone"


def test_each_attempt_is_a_link_to_itself_alone_where_its_start_has_the_full_width() -> None:
    told = explain(hung())
    links = [one["href"] for one in Page(timeline(told, zoom=lambda number: f"?attempt={number}")).all("a")]
    assert [one for one in links if str(one).startswith("?")] == ["?attempt=1", "?attempt=2"]
    alone = Page(timeline(told, only=2, zoom=lambda number: f"?attempt={number}" if number else "?"))
    assert [one["href"] for one in alone.all("a")][:2] == ["?", "?attempt=1"], "back, and to its neighbour"
    assert "Its start: 30.0 s" in alone.text
    assert [one["width"] for one in alone.all("svg") if one.get("class") == "clip"] == ["100%"]


def test_an_attempt_that_goes_on_ends_at_a_line_that_says_now() -> None:
    one = Attempt(number=1, start_time="2026-11-23T10:00:00Z", first_step_time="2026-11-23T10:01:00Z", last_step=5)
    assert Page(timeline(story(attempts=(one,)))).texts["title"][-1] == "now: 2026-11-23 12:00:00"
    ended = replace(one, end_time="2026-11-23T11:00:00Z", end_reason="Hang")
    assert "now" not in [each.get("class") for each in Page(timeline(story(attempts=(ended,)))).all("line")]


def test_a_cordon_stands_in_the_row_of_the_fault_on_its_node() -> None:
    fault = Trouble(cause="GPUFault", message="", time="2026-11-23T11:00:00Z", attempt=1, rank=3, node="node-4")
    names = tuple(f"node-{number}" for number in range(1, 5))
    one = Attempt(number=1, start_time="2026-11-23T10:00:00Z", last_step=5, node_names=names, faults=(fault,))
    cordon = Cordon(node="node-4", time="2026-11-23T11:00:00Z", attempt=1)
    drawn = Page(timeline(story(attempts=(one,), cordons=(cordon,))))
    (mark,) = [each["cy"] for each in drawn.all("circle") if each.get("class") == "fault" and each["r"] == "5"][:1]
    assert mark in [each.get("y") for each in drawn.all("svg")]
