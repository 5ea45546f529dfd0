"""What an S3 service does to us, done by a real one behind a proxy: it throttles, breaks off, refuses, is slow."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_local.s3_faults import ACCESS_DENIED, EXPIRED_TOKEN, SLOW_DOWN, Cut, Faults, Lost, Refusal, Short, Stall
from oarlock_trainer.errors import ConfigurationError, StorageError
from oarlock_trainer.storage import s3_upload
from oarlock_trainer.storage.keys import Keys
from oarlock_trainer.storage.patience import Patience
from oarlock_trainer.storage.s3 import S3Files
from oarlock_trainer.storage.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable
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


def each_request(files: S3Files, file: Path) -> list[Callable[[], object]]:
    return [
        files.list,
        lambda: files.find("a"),
        lambda: files.read("a"),
        lambda: files.open("a"),
        lambda: files.write("a", b""),
        lambda: files.upload("a", file),
        lambda: files.remove("a"),
    ]


@pytest.mark.parametrize("number", range(7))
@pytest.mark.parametrize(
    "case",
    [
        (EXPIRED_TOKEN, StorageError, "Renew the Secret r2-keys"),
        (ACCESS_DENIED, ConfigurationError, "Let the Secret r2-keys list the bucket"),
        (Refusal(403, "InvalidAccessKeyId"), ConfigurationError, "Correct AWS_ACCESS_KEY_ID"),
        (Refusal(404, "NoSuchBucket"), ConfigurationError, "Create the bucket, or correct training.data"),
        (Refusal(403, "RequestTimeTooSkewed"), StorageError, "clock"),
    ],
    ids=lambda case: case[0].code,
)
def test_what_is_refused_for_good_is_said_at_once_with_what_to_do(
    through: Through, faults: Faults, tmp_path: Path, number: int, case: tuple[Refusal, type[Exception], str]
) -> None:
    (tmp_path / "a").write_bytes(b"")
    fault, kind, words = case
    faults.plan(fault, times=10_000)
    with pytest.raises(kind, match=f"bucket pictures at http.*{words}") as raised:
        each_request(through(), tmp_path / "a")[number]()
    assert str(raised.value).startswith(FIELD)
    assert len(faults.requests) <= 2


def test_the_server_s_own_refusals_say_what_to_do(service: Service) -> None:
    with pytest.raises(ConfigurationError, match=r"bucket no-such-bucket at .*Create the bucket"):
        S3Files(service, "no-such-bucket", field=FIELD).list()
    with pytest.raises(ConfigurationError, match=r"bucket no-such-bucket at .*Create the bucket"):
        S3Files(service, "no-such-bucket", field=FIELD).find("a")
    wrong = replace(service, keys=Keys("nobody", "nothing"))
    with pytest.raises(ConfigurationError, match="AWS_SECRET_ACCESS_KEY in the Secret r2-keys"):
        S3Files(wrong, BUCKET, field=FIELD).list()
    with pytest.raises(ConfigurationError, match="AWS_SECRET_ACCESS_KEY in the Secret r2-keys"):
        S3Files(wrong, BUCKET, field=FIELD).find("a")


def test_the_region_of_a_bucket_is_found_whatever_is_asked_first(
    s3_files: S3Files, service: Service, folder: str
) -> None:
    s3_files.write("a", b"1")
    for number, ask in enumerate((S3Files.find, S3Files.read)):
        # A client of its own, which knows nothing yet.
        elsewhere = replace(service, region="auto", pool_size=10 + number)
        assert ask(S3Files(elsewhere, BUCKET, prefix=folder, field=FIELD), "a")


def test_no_credentials_at_all_is_said(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/nonexistent")
    keyless = Service(endpoint=server.endpoint, region=server.region)
    with pytest.raises(ConfigurationError, match="credentialsSecretRef"):
        S3Files(keyless, BUCKET, field=FIELD).list()


def test_without_a_secret_the_standard_credential_chain_is_used(
    server: Any, s3_files: S3Files, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret_access_key)
    s3_files.write("a", b"1")
    chain = Service(connection="chain", endpoint=server.endpoint, region=server.region)
    assert S3Files(chain, BUCKET, prefix=folder, field=FIELD).read("a") == b"1"


def test_the_region_auto_finds_the_service_s_own(service: Service, s3_files: S3Files, folder: str) -> None:
    s3_files.write("a", b"1")
    automatic = S3Files(replace(service, region="auto"), BUCKET, prefix=folder, field=FIELD)
    assert (automatic.read("a"), [entry.name for entry in automatic.list()]) == (b"1", ["a"])


@pytest.mark.parametrize(("endpoint", "region"), [("nonsense", "auto"), ("http://127.0.0.1", "no region")])
def test_an_endpoint_or_a_region_that_is_none_is_a_configuration_error(endpoint: str, region: str, keys: Keys) -> None:
    service = Service(endpoint=endpoint, region=region, keys=keys)
    with pytest.raises(ConfigurationError, match=r"s3Connections\[default\]"):
        S3Files(service, BUCKET, field=FIELD).list()


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
    assert not path.exists()


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
