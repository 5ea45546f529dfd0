"""A real S3 service on this machine: versitygw over a folder, as long as the block lives and never longer than this process.

    with serving(tmp_path, buckets=["pictures"]) as server:
        boto3.client("s3", endpoint_url=server.endpoint, region_name=server.region, ...)

Each bucket is a folder below the given one, and each object a file. The file system must hold extended attributes.
"""

import secrets
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from oarlock_local.binaries import VERSITYGW
from oarlock_local.build import built
from oarlock_local.errors import LocalError
from oarlock_local.ports import free_port
from oarlock_local.processes import start_logged

_START_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class S3Server:
    """A running service: where it is, and the keys of its only account, which may do everything."""

    endpoint: str
    folder: Path
    region: str = "us-east-1"
    access_key_id: str = field(default_factory=lambda: secrets.token_hex(10))
    secret_access_key: str = field(default_factory=lambda: secrets.token_hex(20))


@contextmanager
def serving(folder: Path, *, buckets: Sequence[str] = (), address: str = "127.0.0.1") -> Iterator[S3Server]:
    """Serve `folder` on a free port of `address`, with those buckets in it; the log lies beside it.

    Raises BuildError where the program can't be built, LocalError where it does not answer.
    """
    program = built(VERSITYGW)
    for bucket in buckets:
        (folder / bucket).mkdir(parents=True, exist_ok=True)
    server = S3Server(f"http://{address}:{free_port(address)}", folder)
    log = folder.with_name(f"{folder.name}.s3.log")
    command = [str(program), "--port", server.endpoint.removeprefix("http://"), "--quiet", "--keep-alive"]
    keys = {"ROOT_ACCESS_KEY_ID": server.access_key_id, "ROOT_SECRET_ACCESS_KEY": server.secret_access_key}
    process = start_logged([*command, "posix", str(folder)], log, environ=keys)
    try:
        _await_answer(server, process, log)
        yield server
    finally:
        process.kill()
        process.wait()


def _await_answer(server: S3Server, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            httpx.get(server.endpoint, timeout=1)  # it refuses us, but it answers
        except httpx.TransportError:
            time.sleep(0.01)
        else:
            return
    last = "\n".join(log.read_text(errors="replace").splitlines()[-5:])
    raise LocalError(f"versitygw did not answer on {server.endpoint}: {last or 'it said nothing'}. Its log is {log}.")
