"""TensorBoard's files: what protobuf and the checksums say of them, and what an attempt takes back of the one before."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import pytest
from event_files import records

from oarlock_trainer.tracking import event_records
from oarlock_trainer.tracking.tensorboard_file import TensorBoardFile, folder_of
from oarlock_trainer.tracking.tracker import RunFacts

if TYPE_CHECKING:
    from pathlib import Path


def facts(output: Path, **changes: Any) -> RunFacts:
    fields: dict[str, Any] = {
        "identity": "flux-1", "project": "oarlock", "name": "flux", "url": None, "secrets": {}, "settings": {"seed": 1},
        "output": output, "attempt": 1, "first": 0,
    }  # fmt: skip
    return RunFacts(**fields | changes)


def test_the_checksum_is_castagnoli_s() -> None:
    assert event_records.crc32c(b"123456789") == 0xE3069283  # RFC 3720's family of checksums, by its check value
    assert event_records.crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720, appendix B.4


def test_a_record_is_what_tensorboard_reads_to_the_byte() -> None:
    # Written once, read by tensorboard 2.21's own reader as step 3 with loss 0.5.
    assert event_records.scalars(3, {"loss": 0.5}, 8.0).hex() == (
        "1a00000000000000129bd82d09000000000000204010032a0d0a0b0a046c6f7373150000003f8d03293a"
    )


def test_an_attempt_writes_what_it_goes_on_from_and_then_its_steps(tmp_path: Path) -> None:
    for attempt, first in ((1, 0), (2, 1)):
        tracker = TensorBoardFile(facts(tmp_path, attempt=attempt, first=first))
        tracker.log(first + 1, {"loss": 0.5, "seconds/data": 0.25})
        tracker.close(done=attempt == 2)
    one, other = sorted(folder_of(facts(tmp_path)).iterdir(), key=lambda path: path.name[-1])
    assert "tfevents" in one.name
    version, _, step = records(one.read_bytes())
    assert version.file_version == "brain.Event:2"
    assert (step.step, [(value.tag, value.simple_value) for value in step.summary.value]) == (
        1,
        [("loss", 0.5), ("seconds/data", 0.25)],
    )
    _, again, step = records(other.read_bytes())
    assert (again.step, again.session_log.status, step.step) == (2, 1, 2)


@pytest.mark.parametrize(
    ("name", "folder"), [("flux", "flux"), ("../../etc", "-..-etc"), ("..", "run"), ("a b/ü", "a-b-ü")]
)
def test_a_run_s_folder_lies_below_the_output_whatever_its_name(tmp_path: Path, name: str, folder: str) -> None:
    assert folder_of(facts(tmp_path, name=name)) == tmp_path / "tensorboard" / folder


def test_half_a_record_is_taken_back_so_that_what_follows_can_be_read(tmp_path: Path) -> None:
    class Full:
        """A storage that has room for ten bytes more."""

        def __init__(self, file: Any) -> None:
            self.file, self.name = file, file.name

        def write(self, content: bytes) -> int:
            return int(self.file.write(content[:10]))

        def truncate(self, size: int) -> None:
            self.file.truncate(size)

    tracker = TensorBoardFile(facts(tmp_path))
    roomy = tracker._file
    tracker._file = Full(roomy)  # type: ignore[assignment]
    with pytest.raises(OSError, match="no room") as raised:
        tracker.log(1, {"loss": 0.5})
    assert raised.value.errno == errno.ENOSPC
    tracker._file = roomy
    tracker.log(2, {"loss": 0.25})
    tracker.close(done=True)
    (file,) = folder_of(facts(tmp_path)).iterdir()
    assert [event.step for event in records(file.read_bytes())] == [0, 1, 2]
