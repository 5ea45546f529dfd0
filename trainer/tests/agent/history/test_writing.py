"""The parts that write a pod's history: nothing waits for storage, nothing half written hides the rest, nothing leaks."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock_api.contract.gzip_members import read_members
from oarlock_api.contract.history import LOGS, STACKS, STORY, StoryLine, parse_story, stacks_name
from oarlock_api.contract.log_lines import LogStream, read_log
from oarlock_local import patience
from oarlock_local.patience import eventually
from oarlock_trainer.agent.history import writer
from oarlock_trainer.agent.history.clean_lines import LONGEST_LINE, CleanLines
from oarlock_trainer.agent.history.log_file import LogFile
from oarlock_trainer.agent.history.retention import prune
from oarlock_trainer.agent.history.story_file import StoryFile
from oarlock_trainer.agent.history.writer import HistoryWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

AT = "2026-01-01T00:00:00.000Z"
HEAD = f"{AT} out ".encode()


@given(
    pieces=st.lists(st.sampled_from([b"a", b"\n", b"hunter2", b"hun", b"ter2", b"line one\nline", b"h", b"\xff"])),
    cut=st.integers(1, 7),
)
def test_a_secret_is_struck_out_however_output_is_cut_and_nothing_else_is_lost(pieces: list[bytes], cut: int) -> None:
    written = b"".join(pieces)
    lines = CleanLines(LogStream.OUT, ["hunter2", "line one\nline"])
    kept = b"".join(lines.take(written[at : at + cut], time=AT) for at in range(0, len(written), cut))
    kept += lines.end(time=AT)
    plain = b"".join(line.removeprefix(HEAD) + b"\n" for line in kept.split(b"\n")[:-1])
    expected = written.replace(b"line one\nline", b"***").replace(b"hunter2", b"***")
    assert plain == (expected if expected.endswith(b"\n") or not expected else expected + b"\n")


LONGER = ["foobar", "foobar:tail"]


@pytest.mark.parametrize("cut", range(1, 30))
def test_a_secret_that_begins_as_another_one_does_leaves_no_tail(cut: int) -> None:
    written = b"a foobar:tail\nfoobar:tai\nfoobar\n"
    lines = CleanLines(LogStream.OUT, LONGER)
    kept = b"".join(lines.take(written[at : at + cut], time=AT) for at in range(0, len(written), cut))
    assert kept.replace(HEAD, b"") == b"a ***\n***:tai\n***\n"


def test_secrets_that_overlap_leave_nothing_of_either() -> None:
    lines = CleanLines(LogStream.OUT, ["abcdef", "defghij"])
    assert lines.take(b"1 abcdefghij 2\n", time=AT) == HEAD + b"1 *** 2\n"


def test_what_may_well_be_the_beginning_of_a_secret_is_struck_out_at_the_end() -> None:
    lines = CleanLines(LogStream.OUT, ["hunter2345"])
    assert lines.take(b"the key is hunter2", time=AT) == b""
    assert lines.end(time=AT) == HEAD + b"the key is ***\n"


def test_what_comes_after_the_end_is_dropped_as_it_may_be_a_secrets_rest() -> None:
    lines = CleanLines(LogStream.OUT, ["hunter2"])
    lines.take(b"hun", time=AT)
    assert lines.end(time=AT) == HEAD + b"hun\n"
    assert lines.take(b"ter2\n", time=AT) == b""


def test_output_without_a_newline_is_kept_in_long_lines() -> None:
    lines = CleanLines(LogStream.ERR, [])
    kept = b"".join(lines.take(b"#" * 1000, time=AT) for _ in range(100)) + lines.end(time=AT)
    assert kept.count(b"#") == 100_000
    assert max(map(len, kept.split(b"\n"))) < LONGEST_LINE + 2000


class Storage:
    """A log and a story of which each write does what the test says."""

    def __init__(self) -> None:
        self.error: OSError | None = None
        self.open = threading.Event()
        self.open.set()
        self.kept: list[bytes] = []
        self.lines: list[str] = []

    def append(self, lines: bytes | Sequence[str], *, time: str = "") -> None:  # noqa: ARG002
        self.open.wait()
        if self.error:
            raise self.error
        if isinstance(lines, bytes):
            self.kept.append(lines)
        else:
            self.lines.extend(lines)


@pytest.fixture
def storage() -> Storage:
    return Storage()


def written_by(storage: Storage, output: Path) -> HistoryWriter:
    return HistoryWriter(output, log=storage, story=storage, flush_seconds=0.01, retry_seconds=0.01)


def test_storage_that_hangs_costs_the_oldest_output_and_what_is_missing_is_said(
    storage: Storage, tmp_path: Path
) -> None:
    storage.open.clear()
    history = written_by(storage, tmp_path)
    piece = b"x" * (writer.MAX_BUFFERED // 4)
    for _ in range(20):
        history.print(piece)  # returns, though nothing is written
    history.print(b"the last\n")
    storage.open.set()
    history.close(patience.SECONDS)
    kept = b"".join(storage.kept)
    assert kept.endswith(b"the last\n")
    missing = 20 * len(piece) - kept.count(b"x")
    assert missing > 0
    assert f" note {missing} bytes are missing here\n".encode() in kept


def test_a_disk_that_was_full_for_a_while_costs_nothing(storage: Storage, tmp_path: Path) -> None:
    storage.error = OSError(28, "No space left on device")
    history = written_by(storage, tmp_path)
    history.print(b"one\n")
    history.tell(["line one"])
    history.close(0.05)
    storage.error = None
    history = written_by(storage, tmp_path)
    storage.error = OSError(28, "No space left on device")
    history.tell(["line one"])
    history.print(b"one\n")
    eventually(lambda: history._failed, "an append that failed")
    storage.error = None
    eventually(lambda: storage.lines, "the next one")
    history.close(patience.SECONDS)
    assert (b"".join(storage.kept), storage.lines) == (b"one\n", ["line one"])


def test_nothing_is_written_before_the_output_is_there(storage: Storage, tmp_path: Path) -> None:
    output = tmp_path / "output"
    history = written_by(storage, output)
    history.tell(["line"])
    eventually(lambda: history._not_before, "a look at the output")
    assert not storage.lines
    output.mkdir()
    eventually(lambda: storage.lines, "the line")
    history.close(patience.SECONDS)


WRITE_FOR_EVER = """
import sys
from pathlib import Path
from oarlock_trainer.agent.history.log_file import LogFile
from oarlock_trainer.agent.history.story_file import StoryFile
from oarlock_api.contract.history import StoryLine
folder = Path(sys.argv[1])
log, story = LogFile(folder, 0, most=1 << 30), StoryFile(folder / "story.jsonl")
for number in range(10**9):
    log.append(f"{number} {'x' * (number % 5000)}\\n".encode(), time="")
    story.append([StoryLine(time="", type="Stage", attempt=number, message="y" * (number % 3000)).to_json()])
"""


def test_a_writer_that_is_killed_anywhere_leaves_all_that_it_had_written_before(tmp_path: Path) -> None:
    chance = random.Random(47)  # noqa: S311
    for turn in range(4):
        folder = tmp_path / str(turn)
        folder.mkdir()
        process = subprocess.Popen([sys.executable, "-c", WRITE_FOR_EVER, str(folder)])
        least = chance.randrange(1000, 300_000)
        story, log = folder / STORY, folder / "0.log.gz"
        eventually(lambda story=story, least=least: story.exists() and story.stat().st_size > least, "some lines")
        process.send_signal(signal.SIGKILL)
        process.wait()
        told = [line.attempt for line in parse_story(story.read_text())]
        kept = [int(content.split()[0]) for content in read_members(log)]
        assert told == list(range(len(told)))
        assert kept == list(range(len(kept)))
        assert len(told) <= len(kept) <= len(told) + 2


def test_a_line_behind_a_torn_one_is_a_line_of_its_own(tmp_path: Path) -> None:
    line = StoryLine(time=AT, type="Stage", attempt=1).to_json()
    (tmp_path / STORY).write_text(line + "\n" + line[:20])
    StoryFile(tmp_path / STORY).append([line])
    assert len(parse_story((tmp_path / STORY).read_text())) == 2


def test_a_story_that_grows_too_long_begins_anew_and_keeps_the_part_before(tmp_path: Path) -> None:
    story = StoryFile(tmp_path / STORY, most=1000)
    for number in range(100):
        story.append([StoryLine(time=AT, type="Stage", attempt=number).to_json()])
    numbers = [line.attempt for name in ("story.1.jsonl", STORY) for line in parse_story((tmp_path / name).read_text())]
    assert numbers == list(range(numbers[0], 100))
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 2500


def test_a_log_is_bounded_loses_its_oldest_lines_and_says_so(tmp_path: Path) -> None:
    chance = random.Random(47)  # noqa: S311
    log = LogFile(tmp_path, 3, most=20_000)
    for number in range(100):
        log.append(f"{AT} out {number} {chance.randbytes(500).hex()}\n".encode(), time=AT)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 20_000
    lines = list(read_log([tmp_path / "3.1.log.gz", tmp_path / "3.log.gz"]))
    numbers = [int(line.text.split()[0]) for line in lines if line.stream == LogStream.OUT]
    assert numbers == list(range(numbers[0], 100))
    assert any(line.stream == LogStream.NOTE and "20000 bytes" in line.text for line in lines)


def test_a_part_that_a_full_disk_cut_off_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogFile(tmp_path, 0, most=1 << 20)
    log.append(b"one\n", time=AT)
    size = (tmp_path / "0.log.gz").stat().st_size
    whole = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, content: whole(descriptor, content[:7]))
    with pytest.raises(OSError, match="No space left"):
        log.append(b"two\n", time=AT)
    assert (tmp_path / "0.log.gz").stat().st_size == size


def test_storage_that_says_only_at_the_end_that_it_is_full_keeps_nothing_of_a_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    log = LogFile(tmp_path, 0, most=1 << 20)
    log.append(b"one\n", time=AT)
    size = (tmp_path / "0.log.gz").stat().st_size
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="quota"):
        log.append(b"two\n", time=AT)
    assert (tmp_path / "0.log.gz").stat().st_size == size


def test_lines_of_the_story_that_a_full_disk_refused_stand_there_once_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, refused = os.write, [True]

    def write(descriptor: int, content: bytes) -> int:
        return whole(descriptor, content[:1] if b"second" in content and refused.pop() else content)

    lines = [StoryLine(time=AT, type="Stage", attempt=1, message=word).to_json() for word in ("first", "second")]
    monkeypatch.setattr(os, "write", write)
    story = StoryFile(tmp_path / STORY)
    with pytest.raises(OSError, match="No space left"):
        story.append(lines)
    refused.append(False)
    story.append(lines)  # as the writer does
    assert [line.message for line in parse_story((tmp_path / STORY).read_text())] == ["first", "second"]


def test_logs_and_stacks_of_the_oldest_attempts_go_and_the_own_and_what_is_nobodys_stay(tmp_path: Path) -> None:
    for number in range(1, 6):
        made = tmp_path / LOGS / f"{number}-aaaaaa"
        made.mkdir(parents=True)
        (made / "0.log.gz").touch()
        stacks = tmp_path / STACKS / stacks_name(number, "aaaaaa", 0, AT)
        stacks.parent.mkdir(exist_ok=True)
        stacks.touch()
        for path in (made, stacks):
            os.utime(path, (number, number))
    (tmp_path / LOGS / "notes").mkdir()
    os.utime(tmp_path / LOGS / "1-aaaaaa", (0, 0))
    assert prune(tmp_path, keep=3, own="1-aaaaaa") == 2
    assert sorted(path.name for path in (tmp_path / LOGS).iterdir()) == ["1-aaaaaa", "4-aaaaaa", "5-aaaaaa", "notes"]
    assert len(list((tmp_path / STACKS).iterdir())) == 3
