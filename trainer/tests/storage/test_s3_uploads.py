"""Large objects go in parts, each whole or not at all, whatever a service does meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from oarlock_local.s3_faults import SLOW_DOWN, Faults, Lost, Refusal
from oarlock_trainer.runtime.errors import StorageError
from oarlock_trainer.runtime.patience import Patience
from oarlock_trainer.storage import s3_upload

if TYPE_CHECKING:
    from pathlib import Path

    from oarlock_local.s3_faults import Fault

BUCKET = "pictures"
CONTENT = bytes(range(256)) * 4096
SHORT = Patience(seconds=0.3, first_delay=0.01)

Through = "Callable[..., S3Files]"


def large(tmp_path: Path) -> tuple[Path, bytes]:
    content = CONTENT * 33
    path = tmp_path / "large"
    path.write_bytes(content)
    return path, content


def unfinished(s3: Any, folder: str) -> list[Any]:
    return [
        upload
        for upload in s3.list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])
        if upload["Key"].startswith(folder)
    ]


@pytest.mark.parametrize("fault", [SLOW_DOWN, Lost()], ids=str)
def test_a_large_file_goes_in_parts_and_a_failed_part_alone_again(
    through: Through, faults: Faults, tmp_path: Path, fault: Fault
) -> None:
    path, content = large(tmp_path)
    faults.plan(fault, method="PUT", path="partNumber=2", times=2)
    through().upload("large", path)
    assert through().read("large") == content
    sent = [request for request in faults.requests if "partNumber" in request.path]
    assert len(sent) == 3 + 2
    assert path.read_bytes() == content


def test_large_bytes_go_in_parts_too(through: Through, faults: Faults) -> None:
    through().write("large", CONTENT * 33)
    assert through().read("large") == CONTENT * 33
    assert len([request for request in faults.requests if "partNumber" in request.path]) == 3


@pytest.mark.parametrize("fault", [Lost(), Refusal(200, "InternalError")], ids=str)
def test_a_completion_whose_answer_was_lost_or_is_an_error_in_a_200_is_one(
    through: Through, faults: Faults, tmp_path: Path, fault: Fault
) -> None:
    path, content = large(tmp_path)
    faults.plan(fault, method="POST", path="uploadId")
    through().upload("large", path)
    assert through().read("large") == content


def test_a_completion_that_is_unknown_at_the_second_try_is_told_by_the_object(
    through: Through, faults: Faults, tmp_path: Path
) -> None:
    path, content = large(tmp_path)
    faults.plan(Lost(), method="POST", path="uploadId")
    faults.plan(Refusal(404, "NoSuchUpload"), method="POST", path="uploadId")
    through().upload("large", path)
    assert through().read("large") == content


def test_a_completion_of_an_upload_that_somebody_ended_is_a_storage_error(
    through: Through, faults: Faults, tmp_path: Path
) -> None:
    faults.plan(Refusal(404, "NoSuchUpload"), method="POST", path="uploadId")
    with pytest.raises(StorageError, match="NoSuchUpload"):
        through().upload("large", large(tmp_path)[0])
    assert through().find("large") is None


def test_an_upload_that_fails_leaves_the_file_the_old_object_and_no_parts(
    through: Through, faults: Faults, tmp_path: Path, s3: Any, folder: str
) -> None:
    through().write("large", b"before")
    path, content = large(tmp_path)
    faults.plan(SLOW_DOWN, method="PUT", path="partNumber=3", times=10_000)
    with pytest.raises(StorageError, match="writing"):
        through(patience=SHORT).upload("large", path)
    assert path.read_bytes() == content
    assert through().read("large") == b"before"
    assert unfinished(s3, folder) == []


def test_an_upload_that_cannot_even_be_aborted_says_what_stays(
    through: Through, faults: Faults, tmp_path: Path, s3: Any, folder: str
) -> None:
    faults.plan(SLOW_DOWN, method="PUT", path="partNumber=3", times=10_000)
    faults.plan(SLOW_DOWN, method="DELETE")
    with pytest.raises(StorageError) as raised:
        through(patience=SHORT).upload("large", large(tmp_path)[0])
    assert "unfinished upload" in raised.value.__notes__[0]
    assert len(unfinished(s3, folder)) == 1


def test_parts_are_alike_and_never_too_many() -> None:
    for size in (s3_upload.PART_BYTES + 1, 10**12, 5 * 2**40):
        length = s3_upload.part_bytes(size)
        assert -(-size // length) <= 10_000
        assert 5 << 20 <= length <= 5 << 30
