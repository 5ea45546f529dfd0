"""One curve of a run, whatever its attempts left in metrics.jsonl."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_trainer.loop import loss_curve

if TYPE_CHECKING:
    from pathlib import Path


def line(step: int, loss: float | None, attempt: int = 1, **fields: Any) -> bytes:
    return json.dumps({"attempt": attempt, "step": step, "loss": loss, "learningRate": 1e-3} | fields).encode() + b"\n"


def means(report: dict[str, Any]) -> list[float | None]:
    return [one["loss"] for one in report["stretches"]]


def test_a_step_that_was_done_again_has_its_last_attempt_s_figures() -> None:
    first = [line(step, 1.0) for step in range(1, 6)]
    again = [line(step, 0.5, attempt=2) for step in range(4, 9)]
    report = loss_curve.describe([*first, *again])
    assert means(report) == [1.0] * 3 + [0.5] * 5
    assert (report["steps"], report["attempts"]) == (8, 2)


def test_steps_beyond_the_last_attempt_s_end_are_no_part_of_the_run() -> None:
    longer = [line(step, 1.0) for step in range(1, 10)]
    unseen = json.dumps({"attempt": 1, "step": 9, "evaluationLoss": {"photos": 2.0}}).encode()
    report = loss_curve.describe([*longer, unseen, *(line(step, 0.5, attempt=2) for step in (1, 2))])
    assert (means(report), report["steps"], report["evaluation"]) == ([0.5, 0.5], 2, {"photos": []})


def test_many_steps_become_few_stretches_that_keep_the_extremes() -> None:
    report = loss_curve.describe(line(step, 9.0 if step == 5000 else 1.0) for step in range(1, 10001))
    assert len(report["stretches"]) == 400
    assert [(one["first"], one["last"]) for one in report["stretches"][:2]] == [(1, 25), (26, 50)]
    assert max(one["highest"] for one in report["stretches"]) == 9.0
    assert {one["lowest"] for one in report["stretches"]} == {1.0}


@pytest.mark.parametrize(
    "strange", [b'{"attempt":1,"step":2,"lo', b"[]\n", b'{"step":"two","loss":1}', b"\xff\n", b"\n"]
)
def test_a_line_that_is_none_spoils_nothing(strange: bytes) -> None:
    assert means(loss_curve.describe([line(1, 0.5), strange, line(2, None)])) == [0.5, None]


def test_the_picture_holds_every_stretch_and_the_losses_on_unseen_data_by_name(tmp_path: Path) -> None:
    unseen = {"attempt": 1, "step": 2, "evaluationLoss": {"a<b": 0.75}, "validation": {"pictures": 4}}
    lines = [line(1, 1.0), line(2, 0.5), line(3, None), json.dumps(unseen).encode() + b"\n"]
    (tmp_path / "metrics.jsonl").write_bytes(b"".join(lines))
    loss_curve.write(tmp_path)
    drawn = ET.parse(tmp_path / "reports" / "training.svg").getroot()  # noqa: S314 - ours
    curves = [one for one in drawn.iter() if one.tag.endswith("polyline")]
    mean = next(one for one in curves if one.get("stroke") == "#2f6f9f")
    (left, top), (right, foot) = [
        tuple(map(float, point)) for point in re.findall(r"([\d.]+),([\d.]+)", mean.attrib["points"])
    ]
    assert left < right
    assert top < foot  # the loss falls, and a picture's heights grow downwards
    assert "unseen: a<b" in [one.text for one in drawn.iter() if one.tag.endswith("text")]
    report = json.loads((tmp_path / "reports" / "training.json").read_text())
    assert report["evaluation"] == {"a<b": [{"step": 2, "loss": 0.75}]}


def test_one_step_or_one_loss_can_be_drawn_and_nothing_makes_no_file(tmp_path: Path) -> None:
    for lines in ([line(1, 1.0)], [line(1, None)], [line(1, 1.0), line(2, 1.0)]):
        ET.fromstring(loss_curve.picture(loss_curve.describe(lines)))  # noqa: S314 - ours
    (tmp_path / "metrics.jsonl").write_bytes(b"")
    loss_curve.write(tmp_path)
    assert not (tmp_path / "reports").exists()
