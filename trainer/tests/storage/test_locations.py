"""From a location of the job to its files: which place, which keys, and nothing before it is needed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_api.contract.secrets import s3_variables, secret_variable
from oarlock_api.location import Location, S3Connection
from oarlock_local import patience
from oarlock_trainer.runtime.errors import ConfigurationError
from oarlock_trainer.runtime.patience import Patience
from oarlock_trainer.storage.bucket import S3Bucket
from oarlock_trainer.storage.credentials import Keys, read_credentials
from oarlock_trainer.storage.locations import Locations
from oarlock_trainer.storage.service import Service, client

if TYPE_CHECKING:
    from pathlib import Path

    from oarlock_local.s3 import S3Server
    from oarlock_trainer.storage.s3 import S3Files

SECRET = "r2-keys"  # noqa: S105 - its name
FIELD = "training.data.textEmbeds"


def connection(**fields: Any) -> S3Connection:
    return S3Connection.model_validate({"credentialsSecretRef": {"name": SECRET}, **fields})


@pytest.fixture
def environment(keys: Keys) -> dict[str, str]:
    return {
        secret_variable(SECRET, "AWS_ACCESS_KEY_ID"): keys.access_key_id,
        secret_variable(SECRET, "AWS_SECRET_ACCESS_KEY"): f"{keys.secret_access_key}\n",
    }


@pytest.fixture
def given(server: S3Server, environment: dict[str, str]) -> Locations:
    connections = (connection(name="other"), connection(endpoint=server.endpoint))
    return Locations(connections=connections, credentials=read_credentials(connections, environment))


def in_bucket(prefix: str | None) -> Location:
    return Location.model_validate({"s3": {"bucket": "pictures", "prefix": prefix}})


def test_an_s3_location_is_read_with_the_keys_of_its_connection_s_secret(
    given: Locations, s3_files: S3Files, folder: str
) -> None:
    given.files_at(in_bucket(folder), FIELD).write("a/b", b"1")
    assert s3_files.read("a/b") == b"1"


def test_a_path_is_a_folder(given: Locations, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    assert given.files_at(Location(path=str(tmp_path)), FIELD).read("a") == b"1"


def test_one_file_is_named_by_its_path(given: Locations, tmp_path: Path) -> None:
    (tmp_path / "table.parquet").write_bytes(b"1")
    files, name = given.file_at(Location(path=str(tmp_path / "table.parquet")), FIELD)
    assert files.read(name) == b"1"


def test_one_file_is_named_by_its_key(given: Locations, s3_files: S3Files, folder: str) -> None:
    s3_files.write("tables/table.parquet", b"1")
    files, name = given.file_at(in_bucket(f"{folder}/tables/table.parquet"), FIELD)
    assert files.read(name) == b"1"


def test_one_file_may_lie_at_the_top_of_a_bucket(given: Locations, s3: Any) -> None:
    s3.put_object(Bucket="pictures", Key="top.parquet", Body=b"1")
    files, name = given.file_at(in_bucket("top.parquet"), FIELD)
    assert files.read(name) == b"1"


def test_a_whole_bucket_is_no_file(given: Locations) -> None:
    with pytest.raises(ConfigurationError, match=rf"{FIELD}\.s3\.prefix"):
        given.file_at(in_bucket(None), FIELD)


def test_a_connection_that_is_not_there_is_said(given: Locations) -> None:
    location = Location.model_validate({"s3": {"bucket": "pictures", "connection": "third"}})
    with pytest.raises(ConfigurationError, match=rf"{FIELD}\.s3\.connection: third"):
        given.files_at(location, FIELD)


def test_a_secret_without_its_keys_is_said(environment: dict[str, str]) -> None:
    del environment[secret_variable(SECRET, "AWS_SECRET_ACCESS_KEY")]
    with pytest.raises(ConfigurationError, match=r"s3Connections\[default\].*r2-keys gives no AWS_SECRET_ACCESS_KEY\."):
        read_credentials([connection()], environment)


def test_a_session_token_is_taken_where_there_is_one(environment: dict[str, str], keys: Keys) -> None:
    assert read_credentials([connection()], environment) == {"default": keys}
    environment[secret_variable(SECRET, "AWS_SESSION_TOKEN")] = "token"
    assert read_credentials([connection()], environment)["default"].session_token == "token"  # noqa: S105


def test_a_connection_without_a_secret_has_no_keys_and_no_variables(environment: dict[str, str]) -> None:
    keyless = S3Connection(name="chain")
    assert read_credentials([keyless, connection()], environment).keys() == {"default"}
    both = {"s3Connections": [keyless.to_manifest(), connection().to_manifest()]}
    assert s3_variables({"s3Connections": [keyless.to_manifest()]}) == frozenset()
    assert set(environment) < s3_variables(both)


def test_keys_are_in_no_text(keys: Keys) -> None:
    service = Service(keys=Keys(keys.access_key_id, keys.secret_access_key, "token"))
    assert keys.secret_access_key not in f"{service} {service!r}"
    assert "token" not in repr(service)


def test_a_process_has_one_client_for_a_service_and_a_fork_has_its_own(service: Service) -> None:
    ours = client(service)
    assert client(Service(endpoint=service.endpoint, region=service.region, keys=service.keys, secret=SECRET)) is ours
    pid = os.fork()
    if not pid:
        os._exit(client(service) is ours)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize(
    ("region", "endpoint", "environ", "expected"),
    [
        ("auto", None, {}, ("us-east-1", "https://s3.amazonaws.com")),
        ("auto", None, {"AWS_DEFAULT_REGION": "eu-north-1"}, ("eu-north-1", "https://s3.eu-north-1.amazonaws.com")),
        ("eu-west-1", None, {}, ("eu-west-1", "https://s3.eu-west-1.amazonaws.com")),
        ("auto", "https://account.r2.example.com", {}, ("auto", "https://account.r2.example.com")),
    ],
)
def test_the_region_is_auto_only_where_an_endpoint_takes_it(
    monkeypatch: pytest.MonkeyPatch, region: str, endpoint: str, environ: dict[str, str], expected: tuple[str, str]
) -> None:
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    made = client(Service(connection=str(environ), region=region, endpoint=endpoint, keys=Keys("a", "b")))
    assert (made.meta.region_name, made.meta.endpoint_url) == expected


def test_a_job_without_s3_does_not_import_boto3() -> None:
    program = (
        "import sys, oarlock_trainer.storage.locations as locations; assert locations and 'boto3' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_places_of_one_service_share_its_limit_of_requests(given: Locations, service: Service) -> None:
    limited_to_two = replace(given, pool_size=2)
    places = [limited_to_two.files_at(in_bucket(prefix), FIELD) for prefix in ("a", "b")]
    places.append(limited_to_two.file_at(in_bucket("c/d"), FIELD)[0])
    services = {place._bucket.service for place in places}  # type: ignore[attr-defined]
    (limited,) = services
    three = threading.Barrier(3)

    def ask(bucket: str, asked: Service, seconds: float) -> bool:
        """Whether it is one of three at a time."""

        def request(_: Any) -> bool:
            try:
                three.wait(seconds)
            except threading.BrokenBarrierError:
                return False
            return True

        named = S3Bucket(service=asked, name=bucket, field=FIELD, patience=Patience())
        return named.ask(request, doing="reading")

    # Where the third is not let in, nobody waits for it for long.
    for asked, at_once, seconds in ((limited, False, 0.2), (service, True, patience.SECONDS)):
        with ThreadPoolExecutor(3) as pool:
            assert list(pool.map(ask, ("one", "two", "three"), [asked] * 3, [seconds] * 3)) == [at_once] * 3
        three.reset()


def test_an_absolute_name_of_a_pod_is_found_where_its_path_lies_here(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"1")
    files = Locations(paths={"/output": str(tmp_path)}).files_at(Location(path=str(tmp_path / "far")), FIELD)
    found = files.find("/output/a.png")
    assert found is not None
    assert (found.name, files.read("/output/a.png")) == ("/output/a.png", b"1")
    assert files.find("/outputs/a.png") is None
