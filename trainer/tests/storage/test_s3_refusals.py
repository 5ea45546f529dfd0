"""What a service refuses for good is said at once, with what to do: rights, credentials, buckets, regions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_local.pytest_tiers import quick_first
from oarlock_local.s3_faults import ACCESS_DENIED, EXPIRED_TOKEN, Faults, Refusal
from oarlock_trainer.runtime.errors import ConfigurationError, StorageError
from oarlock_trainer.storage.credentials import Keys
from oarlock_trainer.storage.s3 import S3Files
from oarlock_trainer.storage.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


BUCKET = "pictures"
FIELD = "training.data.datasets[0].source.s3"

Through = "Callable[..., S3Files]"


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


_REFUSALS = [
    (EXPIRED_TOKEN, StorageError, "Renew the Secret r2-keys"),
    (ACCESS_DENIED, ConfigurationError, "Let the Secret r2-keys list the bucket"),
    (Refusal(403, "InvalidAccessKeyId"), ConfigurationError, "Correct AWS_ACCESS_KEY_ID"),
    (Refusal(404, "NoSuchBucket"), ConfigurationError, "Create the bucket, or correct training.data"),
    (Refusal(403, "RequestTimeTooSkewed"), StorageError, "clock"),
]
"""What a service says, and what comes of it."""
_EACH = [(case, number) for case in _REFUSALS for number in range(7)]
_FEW = [(_REFUSALS[number // 2], number % 7) for number in range(10)]
"""Each refusal of two requests, and each request once."""


@pytest.mark.parametrize(
    ("case", "number"),
    quick_first([*_FEW, *(one for one in _EACH if one not in _FEW)], len(_FEW)),
    ids=lambda one: one[0].code if isinstance(one, tuple) else str(one),
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
