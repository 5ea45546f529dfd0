import gzip
import os
from pathlib import Path

import pytest

from oarlock_api.contract import gzip_members, history, log_lines
from oarlock_api.contract.gzip_members import member, read_members, read_pieces
from oarlock_api.contract.history import StoryLine, StoryType
from oarlock_api.contract.wire import WireError

UID = "3f2a91bc-1111-2222-3333-444455556666"


def line(**more: object) -> StoryLine:
    told = {"time": "2026-11-23T10:00:00.123Z", "type": StoryType.CHECKPOINT, "attempt": 2, **more}
    return StoryLine(**told)  # type: ignore[arg-type]


def test_a_line_is_read_as_it_was_written() -> None:
    told = line(job=UID, rank=0, node="gpu-a", reason="Hang", message="It is over.\nÄ", data={"step": 7})
    assert history.parse_line(told.to_json()) == told
    assert "\n" not in told.to_json()


def test_fields_and_types_of_a_newer_writer_are_tolerated() -> None:
    read = history.parse_line('{"version":9,"type":"Tomorrow","attempt":1,"time":"x","colour":"blue","data":[1]}')
    assert (read.type, read.attempt, read.data) == ("Tomorrow", 1, {})


@pytest.mark.parametrize(
    "body", ["", "{", "[]", '{"type":"Ended"}', '{"attempt":1}', '{"type":"Ended","attempt":true}']
)
def test_what_is_no_line_is_refused(body: str) -> None:
    with pytest.raises(WireError):
        history.parse_line(body)


def test_a_line_is_bounded_whatever_it_tells() -> None:
    long = line(message="m" * 100_000, data={"stacks": "s" * 100_000})
    assert len(long.to_json().encode()) < history.MAX_LINE
    assert history.parse_line(long.to_json()).type == StoryType.CHECKPOINT


def test_a_torn_line_costs_itself_alone(tmp_path: Path) -> None:
    folder = tmp_path / history.HISTORY
    folder.mkdir(parents=True)
    whole = line(data={"step": 1}).to_json()
    (folder / history.OLDER_STORY).write_text(line(attempt=1).to_json() + "\n")
    (folder / history.STORY).write_bytes(f"{whole}\n{whole[:40]}\n{whole}\n{whole[:-3]}".encode() + b"\xff")
    assert [one.attempt for one in history.read_story(tmp_path)] == [1, 2, 2]


def test_an_output_without_history_has_none(tmp_path: Path) -> None:
    assert history.read_story(tmp_path) == []
    assert history.find_logs(tmp_path) == []
    assert history.find_stacks(tmp_path) == []


def test_logs_and_stacks_are_found_by_attempt_and_rank_and_two_jobs_of_one_name_stay_apart(tmp_path: Path) -> None:
    logs = tmp_path / history.HISTORY / history.LOGS
    other = "0" * 36
    for place, name, at in (
        (history.attempt_folder(1, other), history.log_name(0), 10),
        (history.attempt_folder(1, UID), history.log_name(0), 20),
        (history.attempt_folder(1, UID), history.log_name(0, older=True), 15),
        (history.attempt_folder(1, UID), history.log_name(11), 20),
        ("strange", "0.log.gz", 30),
    ):
        (logs / place).mkdir(parents=True, exist_ok=True)
        (logs / place / name).touch()
        os.utime(logs / place / name, (at, at))
    old, new = history.find_logs(tmp_path)
    assert (old.attempt, old.job, new.job) == (1, "000000", "3f2a91")
    assert [path.name for path in new.files[0]] == ["0.1.log.gz", "0.log.gz"]
    assert list(new.files) == [0, 11]
    stacks = tmp_path / history.HISTORY / history.STACKS
    stacks.mkdir()
    name = history.stacks_name(12, UID, 3, "2026-11-23T10:00:00.123Z")
    (stacks / name).touch()
    assert name == "12-3f2a91-3-20261123T100000Z.txt"
    assert history.find_stacks(tmp_path) == [stacks / name]
    assert history.parse_attempt_folder(name) == (12, "3f2a91")


@pytest.mark.parametrize("compress", [True, False])
def test_members_behind_each_other_are_one_gzip_file(compress: bool, tmp_path: Path) -> None:  # noqa: FBT001
    first, second = b"a line\n" * 30_000, b""
    written = member(first, compress=compress) + member(second, compress=compress) + member(b"end\n", compress=compress)
    assert gzip.decompress(written) == first + b"end\n"
    (tmp_path / "log").write_bytes(written)
    assert b"".join(read_members(tmp_path / "log")) == first + b"end\n"


def test_a_log_that_ends_anywhere_is_read_up_to_its_last_whole_member(tmp_path: Path) -> None:
    first, second = member(b"first\n"), member(b"second\n")
    for cut in range(len(first) + len(second)):
        (tmp_path / "log").write_bytes((first + second)[:cut])
        expected = b"first\n" if cut >= len(first) else b""
        assert b"".join(read_members(tmp_path / "log")) == expected


def test_what_was_appended_behind_a_torn_member_is_read(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(member(b"one\n") + member(os.urandom(300))[:200] + member(b"two\n"))
    assert b"".join(read_members(tmp_path / "log")) == b"one\ntwo\n"


def test_what_is_torn_is_said_where_it_is_and_no_large_log_is_read_at_once(tmp_path: Path) -> None:
    first, large = member(b"one\n"), member(os.urandom(1 << 20))
    (tmp_path / "log").write_bytes(first + large[:-9] + first + large + first[:5])
    found = list(read_pieces(tmp_path / "log"))
    assert [content and len(content) for content in found] == [4, None, 4, 1 << 20, None]
    pieces = read_pieces(tmp_path / "log")
    next(pieces)
    (tmp_path / "log").write_bytes(b"")
    assert list(pieces) == [None]


def test_a_line_without_an_end_fills_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_lines, "MAX_MEMBER", 1000)
    (tmp_path / "log").write_bytes(member(b"x" * 800) * 5 + member(b"\nlast\n"))
    assert [len(line.text) for line in log_lines.read_log([tmp_path / "log"])] == [1600, 1600, 800, 4]


def test_logs_below_a_link_are_not_found_and_a_log_that_is_one_is_not_read(tmp_path: Path) -> None:
    logs = tmp_path / "output" / history.HISTORY / history.LOGS
    theirs, ours = tmp_path / "theirs", logs / history.attempt_folder(2, UID)
    for folder in (theirs, ours):
        folder.mkdir(parents=True)
    (theirs / history.log_name(0)).write_bytes(member(b"secret\n"))
    (logs / history.attempt_folder(1, UID)).symlink_to(theirs)
    (ours / history.log_name(0)).symlink_to(theirs / history.log_name(0))
    (found,) = (logs for logs in history.find_logs(tmp_path / "output") if logs.files)
    assert found.attempt == 2
    with pytest.raises(OSError, match="symbolic links"):
        list(log_lines.read_log(found.files[0]))


def test_a_member_that_would_fill_memory_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gzip_members, "MAX_MEMBER", 1000)
    (tmp_path / "log").write_bytes(member(bytes(1001)) + member(b"one\n"))
    assert list(read_pieces(tmp_path / "log")) == [None, b"one\n"]
