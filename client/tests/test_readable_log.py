"""Lines of logs in words: those of the trainer, and whatever else a pod prints."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oarlock.logs import LogLine, Wanted
from oarlock.readable_log import LONGEST, Level, Readable, readable

TIME = "2026-11-23T14:03:21.123Z"
AGENT = {"time": TIME, "level": "info", "job": "flux", "attempt": 2, "rank": 3}
STEP = {
    "time": TIME, "attempt": 2, "step": 1140, "total": 5000, "epoch": 1, "loss": 0.7123456, "learningRate": 1e-05,
    "secondsPerStep": 0.3912, "imagesPerSecond": 82.04, "mfu": 0.412, "dataWaitShare": 0.03, "gradientNorm": 0.52,
    "skippedUpdates": 0, "memoryPeakBytes": 7, "slowestRankLag": None, "lossByNoise": {"0.0-0.1": 0.9},
    "seconds": {"data": 0.1},
}  # fmt: skip


def words(text: str, time: str = TIME) -> Readable:
    return readable(LogLine(text=text, time=time, attempt=2, rank=3))


def of(**said: Any) -> Readable:
    return words(json.dumps(said, ensure_ascii=False))


def test_a_step_is_told_by_what_people_watch() -> None:
    assert of(**STEP) == Readable(
        "step 1,140 of 5,000, loss 0.7123, 0.391 s/step, 82 images/s, MFU 41%, learning rate 1e-05, "
        "gradient norm 0.52, waits for data 3%",
        Level.NONE,
        TIME,
    )


def test_large_figures_are_written_out() -> None:
    told = of(
        **{**STEP, "loss": 12345.6, "imagesPerSecond": 9999.9, "gradientNorm": 12345.6, "secondsPerStep": 1e12}
    ).text
    assert "loss 12,346, 1e+12 s/step, 10,000 images/s" in told
    assert "gradient norm 12,346" in told


def test_a_wait_that_is_none_is_not_told() -> None:
    assert "waits" not in of(**{**STEP, "dataWaitShare": 0.004}).text


def test_a_loss_that_is_not_finite_is_a_warning() -> None:
    found = of(**{**STEP, "loss": None, "skippedUpdates": 2})
    assert found.level == Level.WARNING
    assert "loss is not finite" in found.text
    assert "2 updates skipped" in found.text


@pytest.mark.parametrize(
    ("said", "told", "level"),
    [
        (
            {"startSeconds": {"import": 2.1, "model": 20.4}},
            "step 7: the start took 22.5 s (import 2.1 s, model 20.4 s)",
            "",
        ),
        ({"evaluationLoss": {"cats": 0.61}}, "step 7: loss on unseen data: cats 0.61", ""),
        (
            {"validation": {"pictures": 3, "failed": 1, "leftOut": 0, "seconds": 12.34}},
            "step 7: validation made 3 pictures in 12.3 s, 1 failed",
            "WARNING",
        ),
    ],
)
def test_what_else_rank_0_measures_is_told_in_words(said: dict[str, Any], told: str, level: str) -> None:
    found = of(time=TIME, attempt=2, step=7, **said)
    assert (found.text, found.level) == (told, level)


@pytest.mark.parametrize(
    ("said", "told", "level"),
    [
        ({"message": "waiting to be told to go"}, "waiting to be told to go", ""),
        ({"message": "rank 27 ended", "code": 83}, "rank 27 ended (code 83)", ""),
        ({"message": "cut", "level": "warning", "heldBack": 3, "of": None}, "cut (held back 3)", "WARNING"),
        (
            {"message": "storage: fast", "check": "storage", "result": "Passed", "milliseconds": 812},
            "storage: fast (812 ms)",
            "",
        ),
        ({"message": "x", "level": "critical"}, "x", "ERROR"),
        ({"message": "stacks of rank 24", "level": "error", "stacks": "a\n  b"}, "stacks of rank 24 a | b", "ERROR"),
    ],
)
def test_the_agents_log_is_its_sentence_with_what_belongs_to_it(said: dict[str, Any], told: str, level: str) -> None:
    found = of(**{**AGENT, **said})
    assert (found.text, found.level) == (told, level)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "loss 2",
        "  indented, as in a traceback",
        "{not JSON}",
        '{"loss": 1}',
        '{"step": 3, "loss": 0.5}',
        '{"time": "now", "attempt": 1, "step": 3}',
        '{"message": "of my own program"}',
        "[1, 2]",
        "null",
        json.dumps({**STEP, "myOwn": 7}),
        json.dumps({**AGENT, "message": {"my": "own"}}),
        json.dumps({**AGENT, "level": 20, "message": "x"}),
        "{" * 5000 + "}"[:0],
    ],
)
def test_what_is_not_the_trainers_stays_as_it_is(line: str) -> None:
    shown = words(line).text
    assert shown == line or (len(line) > LONGEST and shown.startswith(line[:LONGEST]))


def test_json_of_another_program_stays_as_it_is_and_keeps_its_level() -> None:
    line = '{"severity":"ERROR","event":"boom"}'
    assert words(line) == Readable(line, Level.ERROR, TIME)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("\x1b[31mred\x1b[0m, \x1b]0;title\x07not a title", "red, not a title"),
        (" 10%|#\r 50%|##\r100%|###\r", "\u2026 100%|###"),
        ("100%|###\r        \r", "100%|###"),
        ("rm -rf /\r50%\r   ", "\u2026 50%"),
        ("  \r\n", "  "),
        ("a\x00b\u202ec\td", "a\\x00b\\u202ec\td"),
        ("\x1b", ""),
    ],
)
def test_no_terminal_is_given_orders(line: str, told: str) -> None:
    assert words(line).text == told


def test_a_line_has_an_end() -> None:
    told = words("x" * 5000).text
    assert told == "x" * LONGEST + "\u2026 (3,000 more characters)"


def test_a_long_object_is_cut_in_its_texts_so_that_it_can_still_be_read() -> None:
    line = LogLine(text=json.dumps({**AGENT, "level": "error", "message": "stacks of rank 24", "stacks": "a\n" * 3000}))
    cut = Wanted(longest=1000).cut(line)
    assert len(cut.text) <= 1000
    found = readable(cut)
    assert (found.level, found.text[:24]) == (Level.ERROR, "stacks of rank 24 a | a ")
    assert "more characters" in found.text
    many = Wanted(longest=1000).cut(LogLine(text=json.dumps({str(number): "x" for number in range(300)})))
    assert len(many.text) < 1100


def test_the_nodes_clock_comes_first_and_the_lines_own_where_there_is_none() -> None:
    line = json.dumps({**AGENT, "message": "x"})
    assert words(line, time="2026-11-23T15:00:00.5Z").clock == "15:00:00"
    assert words(line, time="").clock == "14:03:21"
    assert words("x", time="").clock == ""
    assert words('{"time": "<b>Z"}', time="").time == ""


_ODD = (None, True, -1, 1e308, 10**400, float("nan"), "a\nb", [], [{}], {}, {"a": [1], "b": None})


@pytest.mark.parametrize("key", [*AGENT, *STEP, "message", "startSeconds", "evaluationLoss", "validation", "severity"])
def test_whatever_a_field_has_its_line_can_be_read(key: str) -> None:
    for odd in _ODD:
        for line in ({key: odd}, {**AGENT, "message": "x", key: odd}, {**STEP, key: odd}):
            found = words(json.dumps(line), time="")
            assert "\n" not in found.text
            assert found.time in ("", TIME)
