"""Bad pictures: named, counted, bounded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from oarlock_trainer.data import quarantine
from oarlock_trainer.data.quarantine import Rejected
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path


def rejected(count: int) -> list[Rejected]:
    return [Rejected("photos", f"{number}.png", "unreadable", "unreadable: torn") for number in range(count)]


def test_a_few_bad_pictures_are_listed_by_name_and_reason(tmp_path: Path) -> None:
    path = tmp_path / "private" / "quarantine.jsonl"
    quarantine.write(path, rejected(2))
    quarantine.check_bound(rejected(2), pictures=100, listed_in=path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["name"], line["reason"]) for line in lines] == [
        ("0.png", "unreadable: torn"),
        ("1.png", "unreadable: torn"),
    ]


def test_where_not_all_are_named_the_list_says_how_many_more(tmp_path: Path) -> None:
    quarantine.write(tmp_path / "list", rejected(2), count=5)
    assert json.loads((tmp_path / "list").read_text().splitlines()[-1]) == {"moreThatAreNotNamed": 3}


def test_too_many_bad_pictures_stop_the_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="6 of 100 pictures cannot be used"):
        quarantine.check_bound(rejected(6), pictures=100, listed_in=tmp_path)
    quarantine.check_bound(rejected(100), pictures=10_000, listed_in=tmp_path)


def test_those_that_are_not_named_count_as_well(tmp_path: Path) -> None:
    counts = {"unreadable": 10, "without caption": 190}
    with pytest.raises(ConfigurationError, match=r"200 of 10000 .* \(190 without caption, 10 unreadable\)"):
        quarantine.check_bound(rejected(1), pictures=10_000, listed_in=tmp_path, counts=counts)
