"""Entries: a picture and its pair, both ways, each with a key of its own, where they are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from dealing import ROWS, prepared, training

from oarlock_trainer.data.entries import entries_of, entry_keys, keeps_pairs, picture_at, quarters

if TYPE_CHECKING:
    from pathlib import Path

PAIRED: dict[str, Any] = {"conditioning": {"kind": "Mask", "source": {"path": "/masks"}}}
LIVE: dict[str, Any] = {"imageEmbeds": {"mode": "OnTheFly"}}


def sets(*datasets: dict[str, Any]) -> Any:
    each = [{"name": f"set-{number}", "source": {"path": "/a"}} | one for number, one in enumerate(datasets)]
    return training(data={"datasets": each})


@pytest.mark.parametrize(
    ("datasets", "expected"),
    [
        ([{}], 1), ([{"randomFlip": True}], 2), ([PAIRED], 4), ([PAIRED | LIVE, {}], 1),
        ([PAIRED | LIVE, {"randomFlip": True}], 2), ([{}, PAIRED | {"imageEmbeds": {"mode": "OnDemand"}}], 4),
    ],
)  # fmt: skip
def test_an_index_has_as_many_quarters_as_are_kept(datasets: list[dict[str, Any]], expected: int) -> None:
    assert quarters(sets(*datasets)) == expected


def test_each_entry_has_a_key_of_its_own_and_says_what_it_is(tmp_path: Path) -> None:
    table = prepared(tmp_path, masked=True).table
    keys = entry_keys(table, 4 * len(table))
    assert len({key.tobytes() for key in keys}) == 4 * len(table)
    assert keys[: 2 * len(table)].tobytes() == entry_keys(table, 2 * len(table)).tobytes()
    for entry, key in enumerate(keys):
        quarter, row = divmod(entry, len(table))
        one = picture_at(table, entry)
        assert (one.image_key, one.mirrored, one.paired) == (key.tobytes(), quarter % 2 == 1, quarter >= 2)
        assert one.file == (f"mask-{row}.png" if quarter >= 2 else f"{row}.png")
        assert one.name == f"{row}.png"  # by which its cut is drawn


def test_only_what_is_kept_has_entries(tmp_path: Path) -> None:
    table = prepared(tmp_path, ("set-0", "set-1", "set-2", "set-3"), masked=True).table
    settings = sets(PAIRED | {"randomFlip": True}, PAIRED, {"randomFlip": True}, PAIRED | LIVE)
    assert keeps_pairs(settings).tolist() == [True, True, False, False]
    found = entries_of(table.kept, table, settings).reshape(4, 4, ROWS)
    assert (found.all(axis=2) == found.any(axis=2)).all()
    of_datasets = [[1, 1, 1, 1], [1, 0, 1, 0], [1, 1, 0, 0], [1, 0, 0, 0]]
    assert found.all(axis=2).T.astype(int).tolist() == of_datasets
