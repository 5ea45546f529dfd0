"""Nothing that lies elsewhere is read through a folder that others write into."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from oarlock_api.contract.beneath import Beneath
from oarlock_api.contract.regular_file import read_regular, read_spread

PARTS = ("team", "flux", ".oarlock", "owner")
NAME = "/".join(PARTS)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two trees of the same shape below a folder: ours, `here`, and that of somebody else."""
    for name, said in (("here", "ours"), ("elsewhere", "theirs")):
        file = tmp_path / name / NAME
        file.parent.mkdir(parents=True)
        file.write_text(said)
    return tmp_path


def test_a_file_and_its_folders_are_found_below_the_root_which_may_be_a_link(tree: Path) -> None:
    (tree / "link").symlink_to("here")
    for root in (tree / "here", tree / "link"):
        place = Beneath(root) / NAME
        assert (read_regular(place, most=9), place.name, str(place)) == (b"ours", "owner", f"{root}/{NAME}")
        assert place.is_file()
        assert [str(one) for one in (Beneath(root) / "team/flux/.oarlock").iterdir()] == [f"{root}/{NAME}"]
    assert (Beneath(tree / "here") / "team/flux").is_dir()


@pytest.mark.parametrize("level", range(len(PARTS)))
@pytest.mark.parametrize("absolute", [True, False], ids=["absolute", "relative"])
def test_a_link_is_not_followed_at_whichever_level_it_stands(tree: Path, level: int, *, absolute: bool) -> None:
    linked = tree / "here" / Path(*PARTS[: level + 1])
    target = tree / "elsewhere" / Path(*PARTS[: level + 1])
    linked.rename(tree / "moved")
    linked.symlink_to(target if absolute else os.path.relpath(target, linked.parent))
    place = Beneath(tree / "here") / NAME
    for read in (
        lambda: read_regular(place, most=9),
        lambda: read_spread(place, most=9, pieces=2),
        lambda: list((Beneath(tree / "here") / "/".join(PARTS[: level + 1])).iterdir()),
    ):
        with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
            read()
    assert not place.is_file()
    assert not (Beneath(tree / "here") / "/".join(PARTS[: level + 1])).is_dir()


@pytest.mark.parametrize("opened", range(1, len(PARTS) + 1))
def test_a_folder_that_becomes_a_link_while_it_is_read_leads_nowhere_else(
    tree: Path, opened: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # After so many folders were opened, each on the way is exchanged for a link, from the last to the first.
    real, count = os.open, 0

    def exchanging(name: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        nonlocal count
        if count == opened:
            for level in reversed(range(1, len(PARTS))):
                folder = tree / "here" / Path(*PARTS[:level])
                folder.rename(tree / f"moved-{level}")
                folder.symlink_to(tree / "elsewhere" / Path(*PARTS[:level]))
        count += 1
        return real(name, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", exchanging)
    with suppress(OSError):
        assert read_regular(Beneath(tree / "here") / NAME, most=9) == b"ours"
    assert count > opened, "it was exchanged in between"


def test_names_that_lead_up_or_away_are_none(tree: Path) -> None:
    for name in ("..", "team/../..", "/etc/passwd", "team//flux", "", ".", "a\0b"):
        with pytest.raises(ValueError, match="leads to no place"):
            Beneath(tree / "here") / name


def test_a_fifo_and_a_device_are_no_files(tree: Path) -> None:
    os.mkfifo(tree / "here/fifo")
    for name in ("fifo", "team"):
        with pytest.raises(OSError, match=r"no regular file|Is a directory"):
            read_regular(Beneath(tree / "here") / name, most=9)
        assert not (Beneath(tree / "here") / name).is_file()
    with pytest.raises(OSError, match="no regular file"):
        read_regular(Beneath(Path("/dev")) / "null", most=9)


def test_no_descriptor_is_left_open(tree: Path) -> None:
    def held() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = held()
    (tree / "here/link").symlink_to(tree / "elsewhere/team")
    for name in (NAME, "link/flux/.oarlock/owner", "gone/too", "team/flux"):
        try:
            read_regular(Beneath(tree / "here") / name, most=9)
        except OSError:
            (Beneath(tree / "here") / name).is_dir()
    assert held() == before
