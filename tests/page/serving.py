"""The page's server as people start it: `oarlock web` on a laptop, `python -m oarlock.web` in a cluster: processes."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from oarlock_local.ports import free_port

OARLOCK = str(Path(sys.executable).with_name("oarlock"))


@contextmanager
def laptop(kubeconfig: Path, *options: str) -> Iterator[str]:
    """`oarlock web` of all namespaces: the link that it prints, which has the key."""
    command = [OARLOCK, "web", "--kubeconfig", str(kubeconfig), "--no-open", "-A", "--port", "0", *options]
    with _running(command) as line:
        yield line


@contextmanager
def in_cluster(kubeconfig: Path, folder: Path, *options: str) -> Iterator[str]:
    """The page as the chart runs it, beside the cluster instead of in it: its address. Whoever comes needs a token."""
    cluster = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]
    authority = folder / "ca.crt"
    authority.write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
    port = free_port("127.0.0.1")
    command = [sys.executable, "-m", "oarlock.web", "--listen", "127.0.0.1", "--port", str(port)]
    command += ["--api-server", cluster["server"], "--ca-file", str(authority), *options]
    with _running(command):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def _running(command: list[str]) -> Iterator[str]:
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout
        try:
            line = process.stdout.readline().strip()
            assert line, f"{command} ended with {process.wait()} before it had said where it listens"
            yield line
        finally:
            process.terminate()
