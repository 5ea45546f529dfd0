"""Bad pictures that ranks meet while they train: listed by each, counted together, bounded as a scan's are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from oarlock_trainer.data.quarantine import Rejected
from oarlock_trainer.data.quarantine_shared import SharedQuarantine
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path


def of(output: Path, rank: int, *, attempt: int = 1, pictures: int = 100, scanned: int = 0) -> SharedQuarantine:
    before = {"unreadable": scanned} if scanned else {}
    return SharedQuarantine(output, attempt=attempt, rank=rank, pictures=pictures, before=before)


def bad(number: int) -> Rejected:
    return Rejected("photos", f"{number}.png", "unreadable", "unreadable: cut off")


def listed(output: Path) -> dict[str, list[str]]:
    files = sorted((output / ".oarlock" / "quarantine").iterdir())
    return {path.name: [json.loads(line)["name"] for line in path.read_text().splitlines()] for path in files}


def test_each_rank_lists_its_own_and_together_they_are_bounded(tmp_path: Path) -> None:
    ranks = [of(tmp_path, rank) for rank in range(3)]
    for number in range(5):
        ranks[number % 3].add([bad(number)])
    with pytest.raises(
        ConfigurationError, match=r"6 of 100 pictures cannot be used \(6 unreadable\), at most 5 may be"
    ):
        ranks[2].add([bad(5)])
    assert listed(tmp_path) == {
        "attempt-1-rank-0.jsonl": ["0.png", "3.png"],
        "attempt-1-rank-1.jsonl": ["1.png", "4.png"],
        "attempt-1-rank-2.jsonl": ["2.png", "5.png"],
    }


def test_a_picture_that_several_ranks_meet_counts_once(tmp_path: Path) -> None:
    for rank in range(8):
        of(tmp_path, rank).add([bad(1), bad(2)])


def test_what_the_scan_left_out_counts_too(tmp_path: Path) -> None:
    one = of(tmp_path, 0, scanned=4)
    one.add([bad(1)])
    with pytest.raises(ConfigurationError, match="6 of 100"):
        one.add([bad(2)])


def test_an_attempt_begins_anew_and_so_does_a_process_of_it(tmp_path: Path) -> None:
    of(tmp_path, 0).add([bad(number) for number in range(5)])
    of(tmp_path, 0, attempt=2).add([bad(6)])
    of(tmp_path, 0).add([bad(7)])
    assert listed(tmp_path) == {"attempt-1-rank-0.jsonl": ["7.png"], "attempt-2-rank-0.jsonl": ["6.png"]}


def test_a_line_that_another_rank_has_not_ended_is_passed_over(tmp_path: Path) -> None:
    of(tmp_path, 1).add([bad(1)])
    with (tmp_path / ".oarlock" / "quarantine" / "attempt-1-rank-1.jsonl").open("a") as file:
        file.write('{"dataset": "pho')
    of(tmp_path, 0).add([bad(2)])
