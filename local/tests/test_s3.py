"""A real S3 service in a block, and the faults before it."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from oarlock_local.s3 import S3Server, serving
from oarlock_local.s3_faults import SLOW_DOWN, Cut, Faults, Request, Short

pytestmark = [
    pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed"),
    pytest.mark.timeout(func_only=True),  # building the server takes minutes, once on a machine
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with serving(tmp_path_factory.mktemp("s3") / "buckets", buckets=["pictures"]) as running:
        yield running


@pytest.mark.usefixtures("server")
def test_it_serves_signed_requests_only_and_is_gone_after_the_block(tmp_path: Path) -> None:
    with serving(tmp_path / "buckets", buckets=["pictures"]) as server:
        answer = httpx.get(f"{server.endpoint}/pictures")
        assert (answer.status_code, "AccessDenied" in answer.text) == (403, True)
    with pytest.raises(httpx.ConnectError):
        httpx.get(server.endpoint)


def test_what_no_plan_takes_passes_and_is_noted(server: S3Server) -> None:
    with Faults(server.endpoint) as faults:
        through, direct = (
            httpx.get(f"{at}/pictures/x", headers={"Range": "bytes=0-1"}) for at in (faults.endpoint, server.endpoint)
        )
        assert (through.status_code, through.text.count("Code")) == (direct.status_code, direct.text.count("Code"))
        assert faults.requests == [Request("GET", "/pictures/x", "bytes=0-1")]


def test_a_plan_takes_the_requests_that_it_fits_until_it_is_used_up(server: S3Server) -> None:
    with Faults(server.endpoint) as faults:
        faults.plan(SLOW_DOWN, method="GET", path="/pictures", times=2, after=1)
        asked = [("GET", "/pictures"), ("HEAD", "/pictures"), ("GET", "/other"), *[("GET", "/pictures/a")] * 3]
        codes = [httpx.request(method, faults.endpoint + path).status_code for method, path in asked]
    assert [code == 503 for code in codes] == [False, False, False, True, True, False]


def test_a_body_is_cut_or_shortened(server: S3Server) -> None:
    with Faults(server.endpoint) as faults:
        for reset in (True, False):
            faults.plan(Cut(after=3, reset=reset))
            with pytest.raises(httpx.TransportError):
                httpx.get(faults.endpoint)
        faults.plan(Short(length=3))
        assert len(httpx.get(faults.endpoint).content) == 3
