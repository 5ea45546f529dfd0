"""What passes is asked again, and what does not is told: a real S3 server behind a proxy that throttles and breaks off."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from oarlock_local.s3_faults import SLOW_DOWN, Cut, Faults, Lost, Refusal, Short, Stall
from oarlock_trainer.runtime.errors import StorageError
from oarlock_trainer.runtime.patience import Patience
from oarlock_trainer.storage.credentials import Keys
from oarlock_trainer.storage.s3 import S3Files
from oarlock_trainer.storage.service import Service

if TYPE_CHECKING:
    from pathlib import Path

    from oarlock_local.s3_faults import Fault

BUCKET = "pictures"
FIELD = "training.data.datasets[0].source.s3"
CONTENT = bytes(range(256)) * 4096
SHORT = Patience(seconds=0.3, first_delay=0.01)

Through = "Callable[..., S3Files]"


@pytest.mark.parametrize(
    "fault",
    [
        SLOW_DOWN,
        Refusal(500, "InternalError"),
        Refusal(400, "RequestTimeout"),
        Cut(after=1000, reset=True),
        Cut(after=1000),
        Cut(after=0),
        Short(length=1000),
        Lost(),
    ],
    ids=str,
)
def test_what_passes_is_asked_again_until_it_has_passed(
    s3_files: S3Files, through: Through, faults: Faults, fault: Fault
) -> None:
    s3_files.write("a", CONTENT)
    faults.plan(fault, method="GET", times=3)
    assert through().read("a", 7, 500_000) == CONTENT[7:500_007]
    assert [request.method for request in faults.requests] == ["GET"] * 4


@pytest.mark.parametrize("fault", [SLOW_DOWN, Cut(after=0, reset=True), Cut(after=100), Lost()], ids=str)
def test_every_kind_of_request_is_asked_again(through: Through, faults: Faults, tmp_path: Path, fault: Fault) -> None:
    files = through()
    (tmp_path / "b").write_bytes(CONTENT)
    for doing in (
        lambda: files.write("a", CONTENT),
        lambda: files.upload("b", tmp_path / "b"),
        lambda: files.find("a"),
        files.list,
        lambda: files.remove("a"),
    ):
        faults.plan(fault)
        doing()
        faults.forget()
    assert [(entry.name, entry.size) for entry in files.list()] == [("b", len(CONTENT))]


def test_a_silent_connection_is_given_up(s3_files: S3Files, through: Through, faults: Faults) -> None:
    s3_files.write("a", CONTENT)
    faults.plan(Stall(60), method="GET")
    assert through(silence_seconds=0.2).read("a") == CONTENT


@pytest.mark.parametrize("fault", [SLOW_DOWN, Cut(after=10), Short(length=10)], ids=str)
def test_what_does_not_pass_is_a_storage_error_after_the_deadline(
    s3_files: S3Files, through: Through, faults: Faults, fault: Fault
) -> None:
    s3_files.write("a", CONTENT)
    faults.plan(fault, times=10_000)
    with pytest.raises(
        StorageError, match=rf"^{FIELD[:13]}.*reading .*/a in bucket pictures at http.*see to the service"
    ):
        through(patience=SHORT).read("a")


def test_a_service_that_nobody_reaches_is_a_storage_error(keys: Keys) -> None:
    nobody = Service(endpoint="http://127.0.0.1:9", region="us-east-1", keys=keys)
    with pytest.raises(StorageError, match=r"bucket pictures at http://127.0.0.1:9"):
        S3Files(nobody, BUCKET, field=FIELD, patience=SHORT).list()
