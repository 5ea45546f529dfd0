from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ended import Ended, Oarlock
from fake_api import FakeApi, running

from oarlock.cli.main import run


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    """An API server that the kubeconfig in the environment leads to."""
    with running() as api:
        monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(tmp_path)))
        yield api


@pytest.fixture
def oarlock(capfd: pytest.CaptureFixture[str]) -> Oarlock:
    """The command line: its exit code and what it prints."""

    def call(*arguments: str) -> Ended:
        code = run(list(arguments))
        said = capfd.readouterr()
        return Ended(int(code), said.out, said.err)

    return call
