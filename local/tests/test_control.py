"""How a cluster's supervisor answers."""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING

import pytest

from oarlock_local import control
from oarlock_local.errors import ClusterError

if TYPE_CHECKING:
    from pathlib import Path


def test_a_fault_that_the_machine_refuses_is_told_and_the_next_request_is_answered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def handle(request: control.Request) -> None:
        if request["do"] == "start":
            raise BrokenPipeError("node-3 is gone")

    def serve() -> None:
        for _ in range(2):
            control.answer_one(server, handle)

    with control.listen(tmp_path / "control") as server:
        serving = Thread(target=serve)
        serving.start()
        with pytest.raises(ClusterError, match=r"'start', 'node': 'node-3'.* failed: node-3 is gone"):
            control.ask(tmp_path / "control", {"do": "start", "node": "node-3"})
        control.ask(tmp_path / "control", {"do": "stop"})
        serving.join()
    assert "BrokenPipeError" in capsys.readouterr().err
