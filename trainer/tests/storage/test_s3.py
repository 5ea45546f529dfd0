"""Objects below a prefix of a real S3 server's bucket: listed, and read in ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from oarlock_local.s3_faults import SLOW_DOWN, Faults
from oarlock_trainer.runtime.errors import StorageError
from oarlock_trainer.storage.s3 import S3Files
from oarlock_trainer.storage.service import Service

if TYPE_CHECKING:
    pass

BUCKET = "pictures"
FIELD = "training.data.datasets[0].source.s3"
CONTENT = bytes(range(256)) * 4096

Through = "Callable[..., S3Files]"


@pytest.mark.parametrize("prefix", ["photos", "photos/", "/photos/"])
def test_a_prefix_is_a_folder(service: Service, folder: str, prefix: str) -> None:
    bucket = S3Files(service, BUCKET, field=FIELD, prefix=folder)
    for name in ("photos/a", "photos2/b", "photos.txt"):
        bucket.write(name, name.encode())
    photos = S3Files(service, BUCKET, field=FIELD, prefix=f"{folder}/{prefix.lstrip('/')}")
    assert [entry.name for entry in photos.list()] == ["a"]


def test_no_prefix_is_the_whole_bucket(service: Service, s3_files: S3Files, folder: str) -> None:
    s3_files.write("a", b"1")
    assert f"{folder}/a" in [entry.name for entry in S3Files(service, BUCKET, field=FIELD).list()]


def test_folders_that_consoles_make_are_no_files(s3_files: S3Files, s3: Any, folder: str) -> None:
    s3.put_object(Bucket=BUCKET, Key=f"{folder}/sub/")
    s3_files.write("sub/a", b"1")
    assert [entry.name for entry in s3_files.list()] == ["sub/a"]


def test_a_list_goes_on_over_pages_and_asks_for_a_failed_one_alone(
    s3_files: S3Files, through: Through, faults: Faults
) -> None:
    names = [f"{number:04}" for number in range(1005)]
    for name in names:
        s3_files.write(name, b"")
    faults.plan(SLOW_DOWN, path="continuation-token", times=2)
    assert [entry.name for entry in through().list()] == names
    assert len(faults.requests) == 4


def test_an_opened_file_fetches_what_is_asked_for_and_little_more(
    s3_files: S3Files, through: Through, faults: Faults
) -> None:
    s3_files.write("a", CONTENT)
    with through().open("a") as file:
        assert file.read(12) == CONTENT[:12]
        file.seek(700_000)
        assert file.read(200_000) == CONTENT[700_000:900_000]
    asked = [tuple(map(int, request.range[6:].split("-"))) for request in faults.requests if request.range]
    assert sum(end - start + 1 for start, end in asked) <= 12 + 200_000 + 2 * 65_536


def test_an_opened_file_that_is_replaced_is_not_mixed(s3_files: S3Files) -> None:
    s3_files.write("a", CONTENT)
    with s3_files.open("a") as file:
        file.read(1)
        s3_files.write("a", CONTENT[::-1])
        file.seek(500_000)
        with pytest.raises(StorageError, match="was replaced while it was read"):
            file.read(1)
