"""Pictures whose headers are fine and whose pixels are not: left out with their names, and not many of them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from PIL import Image

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_api.contract.layout import PRIVATE
from oarlock_trainer.data import photographs

if TYPE_CHECKING:
    from pathlib import Path

    from preprocess_runs import Preprocess


def test_pictures_that_cannot_be_decoded_are_left_out_and_named(preprocess: Preprocess, tmp_path: Path) -> None:
    pictures = tmp_path / "photos"
    names = photographs.write(pictures, count=30)
    for name in names[3:5]:
        body = (pictures / name).read_bytes()
        (pictures / name).write_bytes(body[: len(body) // 2])
    answers = preprocess(tmp_path / "out", preprocess.training(source={"path": str(pictures)}), ranks=2)
    assert [answer["code"] for answer in answers] == [0, 0], answers
    facts = answers[1]["facts"]
    left_out = {facts["names"][row] for row in facts["leftOut"]}
    assert left_out == set(names[3:5])
    assert {facts["names"][row] for row, shape in enumerate(facts["latents"]) if shape is None} == left_out
    listed = (tmp_path / "out" / PRIVATE / "quarantine.jsonl").read_text().splitlines()
    assert {json.loads(line)["name"] for line in listed} == left_out
    last = [event["message"] for event in answers[0]["told"] if event["event"] == "note"][-1]
    assert "28 latents (" in last
    assert "; 59 of them made now, 0 were there; 2 of 30 pictures quarantined" in last
    again = preprocess(tmp_path / "out", preprocess.training(source={"path": str(pictures)}), attempt=2)
    assert again[0]["facts"] == facts


def test_more_pictures_that_cannot_be_decoded_than_may_be_end_the_job_where_they_are_met(
    preprocess: Preprocess, tmp_path: Path
) -> None:
    pictures = tmp_path / "photos"
    for name in photographs.write(pictures, count=24)[:18]:
        body = (pictures / name).read_bytes()
        (pictures / name).write_bytes(body[: len(body) // 2])
    (answer,) = preprocess(tmp_path / "out", preprocess.training(source={"path": str(pictures)}))
    assert answer["code"] == ExitCode.CONFIGURATION
    # Five may be, and pictures come in batches of four.
    assert re.match(r"[6-9] of 24 pictures cannot be used", answer["said"]), answer["said"]


@pytest.mark.deep
def test_pictures_that_cannot_be_decoded_while_training_are_left_out_and_named(
    preprocess: Preprocess, tmp_path: Path
) -> None:
    pictures = tmp_path / "photos"
    names = photographs.write(pictures, count=9)
    squares = [name for name in names if Image.open(pictures / name).size == Image.open(pictures / names[0]).size]
    body = (pictures / squares[1]).read_bytes()
    (pictures / squares[1]).write_bytes(body[: len(body) // 2])
    training = preprocess.training(source={"path": str(pictures)}, imageEmbeds={"mode": "OnDemand"})
    rows = [names.index(name) for name in squares]
    (answer,) = preprocess(tmp_path / "out", training, live=rows)
    assert answer["code"] == 0, answer["said"]
    first, second = answer["facts"]["live"]
    assert [made is None for made in first] == [name == squares[1] for name in squares]
    assert first == second
    listed = tmp_path / "out" / PRIVATE / "quarantine" / "attempt-1-rank-0.jsonl"
    assert {json.loads(line)["name"] for line in listed.read_text().splitlines()} == {squares[1]}
    notes = [event["message"] for event in answer["told"] if event["event"] == "note"]
    assert any(note.startswith(f"1 pictures left out, such as photos: {squares[1]}: unreadable") for note in notes)


def test_more_of_them_than_may_be_end_the_training(preprocess: Preprocess, tmp_path: Path) -> None:
    pictures = tmp_path / "photos"
    for name in (names := photographs.write(pictures, count=24)):
        body = (pictures / name).read_bytes()
        (pictures / name).write_bytes(body[: len(body) // 2])
    training = preprocess.training(source={"path": str(pictures)}, imageEmbeds={"mode": "OnTheFly"})
    (answer,) = preprocess(tmp_path / "out", training, live=list(range(0, len(names), 3)))
    assert answer["code"] == ExitCode.CONFIGURATION
    assert re.match(r"8 of 24 pictures cannot be used \(8 unreadable\)", answer["said"]), answer["said"]
