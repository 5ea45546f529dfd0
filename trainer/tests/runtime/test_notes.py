"""Notes between nodes: whole or absent, and of this attempt alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oarlock_trainer.runtime.notes import Notes

if TYPE_CHECKING:
    from pathlib import Path


def test_each_node_reads_the_others_notes_and_not_its_own(tmp_path: Path) -> None:
    nodes = [Notes(tmp_path / "notes", gang="uid/1", own=own, nodes=3) for own in range(3)]
    assert nodes[0].read() == {}
    for number, node in enumerate(nodes):
        node.write({"value": number})
    assert {node: note["value"] for node, note in nodes[1].read().items()} == {0: 0, 2: 2}


def test_a_later_note_takes_the_place_of_an_earlier_one_and_leaves_nothing_behind(tmp_path: Path) -> None:
    writer, reader = (Notes(tmp_path, gang="uid/1", own=own, nodes=2) for own in range(2))
    for value in (1, 2):
        writer.write({"value": value})
    assert reader.read()[0]["value"] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["0.json"]


def test_notes_of_another_attempt_or_torn_ones_are_none(tmp_path: Path) -> None:
    Notes(tmp_path, gang="uid/1", own=1, nodes=3).write({"value": 1})
    (tmp_path / "2.json").write_text('{"gang": "uid/2"')
    assert Notes(tmp_path, gang="uid/2", own=0, nodes=3).read() == {}
