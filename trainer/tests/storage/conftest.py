"""A real S3 server for the session, and each kind of place for files on it."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_local.s3 import S3Server, serving
from oarlock_local.s3_faults import Faults
from oarlock_trainer.runtime.patience import Patience
from oarlock_trainer.storage.credentials import Keys
from oarlock_trainer.storage.local import LocalFiles
from oarlock_trainer.storage.s3 import S3Files
from oarlock_trainer.storage.service import Service, client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from oarlock_trainer.storage.files import Files

BUCKET = "pictures"
SECRET = "r2-keys"  # noqa: S105 - its name
FIELD = "training.data.datasets[0].source.s3"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Building the server takes minutes, once on a machine: no test's own time."""
    for item in items:
        if "server" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(func_only=True))


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    if shutil.which("go") is None:
        pytest.skip("Go is not installed: it builds the S3 server")
    with serving(tmp_path_factory.mktemp("s3") / "buckets", buckets=[BUCKET]) as running:
        yield running


@pytest.fixture(scope="session")
def keys(server: S3Server) -> Keys:
    return Keys(server.access_key_id, server.secret_access_key)


@pytest.fixture
def service(server: S3Server, keys: Keys) -> Service:
    return Service(endpoint=server.endpoint, region=server.region, keys=keys, secret=SECRET)


@pytest.fixture
def folder(request: pytest.FixtureRequest) -> str:
    """A prefix for each test: they share the server."""
    return re.sub(r"\W+", "-", request.node.name)


@pytest.fixture
def s3_files(service: Service, folder: str) -> S3Files:
    return S3Files(service, BUCKET, prefix=folder, field=FIELD)


@pytest.fixture(params=["local", "s3"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    if request.param == "local":
        return LocalFiles(tmp_path / "place", field="training.data.datasets[0].source.path")
    s3: S3Files = request.getfixturevalue("s3_files")
    return s3


@pytest.fixture
def faults(server: S3Server) -> Iterator[Faults]:
    with Faults(server.endpoint) as proxy:
        yield proxy


@pytest.fixture
def through(faults: Faults, service: Service, folder: str) -> Callable[..., S3Files]:
    """The same place as `s3_files`, through the proxy."""

    def make(*, silence_seconds: float = 20.0, pool_size: int | None = None, **settings: Any) -> S3Files:
        settings.setdefault("patience", Patience(seconds=20, first_delay=0.01, longest_delay=0.1))
        behind = replace(service, endpoint=faults.endpoint, silence_seconds=silence_seconds, pool_size=pool_size)
        return S3Files(behind, BUCKET, prefix=folder, field=FIELD, **settings)

    return make


@pytest.fixture
def s3(service: Service) -> Any:
    """The plain client."""
    return client(service)
