"""Tables of JSON lines: texts as they are written, cells of several kinds, pieces that are cut anywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from user_tables import Set, look

from oarlock_trainer.data.metadata import table_files
from oarlock_trainer.runtime.errors import ConfigurationError


def lines(folder: Path, *rows: dict[str, Any]) -> None:
    (folder / "t.jsonl").write_text("".join(json.dumps({"width": 64, "height": 64} | row) + "\n" for row in rows))


def test_texts_that_look_like_dates_or_numbers_stay_as_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "2024-01-01.png").write_bytes(b"")
    lines(tmp_path, {"filename": "2024-01-01", "caption": "2024-01-02T00:00:00Z"})
    (row,) = Set(tmp_path, "t.jsonl", filenameHasExtension=False).rows()
    assert (row["name"], row["captions"]) == ("2024-01-01.png", ["2024-01-02T00:00:00Z"])
    (tmp_path / "t.jsonl").write_text('{"filename": 7, "width": 64, "height": 6.4e1, "caption": 1.50}\n')
    (row,) = Set(tmp_path, "t.jsonl").rows()
    assert (row["name"], row["height"], row["captions"]) == ("7", 64, ["1.50"])


def test_columns_that_the_job_does_not_name_may_hold_anything(tmp_path: Path) -> None:
    others: list[dict[str, Any]] = [
        {"score": 0.5},
        {"score": "n/a"},
        {"score": {"a": [1, [None]]}},
        {"score": [1, "a"]},
    ]
    lines(tmp_path, *({"filename": f"{number}.png", "caption": "c"} | other for number, other in enumerate(others)))
    assert [row["name"] for row in Set(tmp_path, "t.jsonl").rows()] == ["0.png", "1.png", "2.png", "3.png"]


@pytest.mark.parametrize("size", [1, 100, 1 << 20])  # also where each piece has cells of one kind
@pytest.mark.parametrize("cells", [["a", ["b", None, ""], None, 5, True], [["b"], "a", 5, ["c", 6]]])
def test_a_cell_may_hold_a_text_or_a_list_of_texts_beside_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cells: list[Any], size: int
) -> None:
    meant = [
        [str(one) for one in (cell if isinstance(cell, list) else [cell]) if one not in {None, ""}] for cell in cells
    ]
    meant = [["true" if one == "True" else one for one in texts] for texts in meant]
    lines(tmp_path, *({"filename": f"{number}.png", "caption": cell} for number, cell in enumerate(cells)))
    monkeypatch.setattr(table_files, "PIECE_BYTES", size)
    rows = {row["name"]: row["captions"] for row in Set(tmp_path, "t.jsonl").rows()}
    assert rows == {f"{number}.png": texts for number, texts in enumerate(meant) if texts}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            b'{"filename": "a", "width": 1, "height": 1, "caption": {"text": "a"}}',
            r'"caption": \{"text": "a"\} is neither',
        ),
        (
            b'{"filename": "a", "width": 1, "height": 1, "caption": [["a"]]}',
            r'"caption": \["a"\] is neither a text nor',
        ),
        (b'{"filename": "a", "width": 1, "height": 1, "caption": "\\ud83d"}', r'"caption": .*surrogates not allowed'),
        (b'{"filename": "a", "width": 1, "height": 1, "caption": "caf\xe9"}', r"line 2: not UTF-8 \(byte 0xe9\)"),
        (b'{"filename": "a", "width": 1,', r"line \d: Expecting"),
        (b'["a", 1, 1, "c"]', "line 2: no object"),
        (b'{"filename": "a", "width": "wide", "height": 1, "caption": "c"}', r"width.*numbers"),
    ],
)
def test_lines_that_hold_something_else_are_told_with_their_place(tmp_path: Path, line: bytes, said: str) -> None:
    lines(tmp_path, {"filename": "first.png", "caption": "c"})
    with (tmp_path / "t.jsonl").open("ab") as file:
        file.write(line + b"\n")
    with pytest.raises(ConfigurationError, match=rf"t\.jsonl.*{said}"):
        Set(tmp_path, "t.jsonl").rows()


@given(
    st.lists(st.text("ab\u00e9\u6f22", min_size=1, max_size=40), max_size=40),
    st.integers(8, 200),
    st.sampled_from(["", "\n"]),
)
@settings(deadline=None)
def test_every_line_of_a_jsonl_file_is_read_once_wherever_it_is_cut(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], size: int, end: str
) -> None:
    folder = tmp_path_factory.mktemp("lines")
    lines = [{"filename": name, "width": 64, "height": 64, "caption": "c"} for name in names]
    body = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines) + (end if lines else "")
    (folder / "t.jsonl").write_text(body)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_files, "PIECE_BYTES", size)
        patch.setattr(table_files, "_LOOK_AHEAD", 16)
        if not lines:
            with pytest.raises(ConfigurationError, match="it has none"):
                Set(folder, "t.jsonl").pieces()
            return
        pieces = Set(folder, "t.jsonl").pieces()
        read = [found for group, its in enumerate(pieces.groups) for _, found in pieces.read(group, its, look)]
    assert [name for found in read for name in found.names.to_pylist()] == names
