"""Trees whose folders are links, also in circles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oarlock_trainer.runtime.walking import walk_links

if TYPE_CHECKING:
    from pathlib import Path


def walked(top: Path) -> list[str]:
    return sorted(str((folder / name).relative_to(top)) for folder, _, files in walk_links(top) for name in files)


def test_links_are_followed_but_not_back_into_a_folder_that_they_lie_in(tmp_path: Path) -> None:
    for name in ("top/a/1", "top/b/2", "beside/3"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "top/self").symlink_to(".")
    (tmp_path / "top/a/up").symlink_to("..")
    (tmp_path / "top/beside").symlink_to("../beside")
    assert walked(tmp_path / "top") == ["a/1", "b/2", "beside/3"]


def test_two_folders_that_hold_each_other_by_links_end(tmp_path: Path) -> None:
    for name in ("top/a/1", "top/b/2"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "top/a/to").symlink_to("../b")
    (tmp_path / "top/b/to").symlink_to("../a")
    assert walked(tmp_path / "top") == ["a/1", "a/to/2", "b/2", "b/to/1"]
