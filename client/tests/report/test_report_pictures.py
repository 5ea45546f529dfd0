"""Which pictures a page shows: only PNG files below the folder of pictures, linked or within it, and never too many bytes."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from pages import PNG, validation

from oarlock.report import find_gallery, pictures


def test_a_page_elsewhere_has_the_pictures_within(tmp_path: Path) -> None:
    validation(tmp_path, 10, 5)
    found = find_gallery(tmp_path, page=Path("/elsewhere/flux.html"))
    assert [[one.name for one in step] for step in found.steps] == [["boat", "a fox"]] * 2
    assert [step[0].step for step in found.steps] == [5, 10]
    first = found.steps[0][0]
    assert (first.prompt, first.width, first.seed) == ("boat on a lake", 64, 42)
    assert base64.b64decode(first.source.removeprefix("data:image/png;base64,")).startswith(PNG)


def test_a_page_below_the_output_links_to_them(tmp_path: Path) -> None:
    validation(tmp_path, 10)
    found = find_gallery(tmp_path, page=tmp_path / "reports/index.html")
    assert [one.source for one in found.steps[0]] == [
        "../validation/step-10/boat-64x64.png",
        "../validation/step-10/a%20fox-64x64.png",
    ]


def test_pictures_that_are_too_large_together_are_shown_as_small_grids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    validation(tmp_path, *range(10, 110, 10), size=1000)
    monkeypatch.setattr(pictures, "MOST_BYTES", 60)
    found = find_gallery(tmp_path)
    assert [step[0].step for step in found.steps] == [10, 30, 50, 80, 100]
    assert [one.name for one in found.steps[-1]] == ["boat, a fox"]
    assert sum(len(base64.b64decode(step[0].source.partition(",")[2])) for step in found.steps) <= 60
    assert found.left_out == "pictures of 10 steps; the small grids of 5 are within this page"


def test_of_very_many_steps_some_are_shown_and_that_is_said(tmp_path: Path) -> None:
    validation(tmp_path, *range(100), names=("boat",))
    found = find_gallery(tmp_path)
    assert len(found.steps) == pictures.MOST_STEPS
    assert (found.steps[0][0].step, found.steps[-1][0].step) == (0, 99)
    assert found.left_out == "100 steps have pictures, 64 are shown"


@pytest.mark.parametrize("page", [None, "index.html"])
def test_an_index_cannot_bring_another_file_into_the_page(tmp_path: Path, page: str | None) -> None:
    output = tmp_path / "flux"
    validation(output, 10)
    (tmp_path / "secret.png").write_bytes(PNG)
    (output / "validation/text.png").write_text("no picture")
    (output / "validation/link.png").symlink_to(tmp_path / "secret.png")
    (output / "validation/notes.txt").write_bytes(PNG)
    (output / "validation/away").symlink_to(tmp_path)
    (output / "validation/step-10/own.png").symlink_to("boat-64x64.png")
    files = [
        "../../secret.png",
        str(tmp_path / "secret.png"),
        "text.png",
        "link.png",
        "away/secret.png",
        "step-10/own.png",
        "notes.txt",
        "gone.png",
        "step-10",
        "a\0b",
        7,
    ]
    entries = [{"step": 10, "name": "x", "file": file} for file in files] + [
        7,
        {"step": "10", "file": "step-10/grid.png"},
    ]
    (output / "validation/index.json").write_text(json.dumps({"pictures": entries}))
    assert find_gallery(output, page=output / page if page else None).steps == ()


def test_pictures_of_an_earlier_job_in_the_same_output_are_left_out(tmp_path: Path) -> None:
    validation(tmp_path, 10, uid="another")
    assert find_gallery(tmp_path, job_uid="u1").steps == ()


@pytest.mark.parametrize("index", ["{torn", "[]", '{"pictures": 7}', '{"pictures": {"a": 1}}'])
def test_an_index_that_cannot_be_read_has_no_pictures(tmp_path: Path, index: str) -> None:
    validation(tmp_path, 10)
    (tmp_path / "validation/index.json").write_text(index)
    assert find_gallery(tmp_path).steps == ()
