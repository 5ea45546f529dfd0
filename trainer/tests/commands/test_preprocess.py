"""`oarlock-trainer preprocess`: the caches of a job on one machine, with words for a log and a bar for a terminal."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_trainer.data.progress import Progress
from oarlock_trainer.runtime.stages import PipelineStage

if TYPE_CHECKING:
    from pathlib import Path


class Terminal(io.StringIO):
    """A terminal that remembers what was written."""

    def isatty(self) -> bool:
        return True


def run(job: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-m", "oarlock_trainer", "preprocess", str(job)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.deep
def test_it_fills_the_caches_of_a_job_that_trains_and_trains_nothing(
    tiny_flux: Path, pictures: Path, tmp_path: Path
) -> None:
    job = tmp_path / "job.json"
    training = {
        "model": {"family": "Flux1", "path": str(tiny_flux)}, "steps": 8, "resolution": 64,
        "data": {"datasets": [{"name": "photos", "source": {"path": str(pictures)}}]},
    }  # fmt: skip
    body = {
        "version": 2, "job": "flux", "namespace": "default", "job_uid": "uid", "attempt": 1, "nodes": 1,
        "gpus_per_node": 0, "output_directory": str(tmp_path / "out"), "training": training,
    }  # fmt: skip
    job.write_text(json.dumps(body))
    ended = run(job)
    assert ended.returncode == 0, ended.stderr
    assert "latents: rank 0 encoded 24 of 24" in ended.stderr
    assert "\r" not in ended.stderr
    last = ended.stderr.splitlines()[-1]
    embeds = tmp_path / "out" / "embeds"
    assert last.startswith(f"preprocessed: 24 latents (11.8 kB) in {embeds / 'latents'}, 25 text embeddings ("), last
    assert f" in {embeds / 'text'}; 49 of them made now, 0 were there; 0 of 24 pictures quarantined; 0:" in last
    manifest = json.loads((tmp_path / "out" / "reports" / "data.json").read_text())
    assert (manifest["latents"]["records"], manifest["textEmbeds"]["records"]) == (24, 25)
    assert not (tmp_path / "out" / "checkpoints").exists()
    assert not (tmp_path / "out" / "model").exists()


def test_what_is_no_job_file_is_refused_with_its_name(tmp_path: Path) -> None:
    job = tmp_path / "job.json"
    job.write_text("[]")
    ended = run(job)
    assert ended.returncode == ExitCode.CONFIGURATION
    assert str(job) in ended.stderr


def test_a_terminal_has_one_line_with_a_bar_and_a_log_a_line_every_half_minute() -> None:
    now = [0.0]
    terminal, log = Terminal(), io.StringIO()
    for stream in (terminal, log):
        now[0] = 0.0
        progress = Progress("latents", own=100, total=100, speaks=True, stream=stream, clock=lambda: now[0])
        with progress.over([PipelineStage("encode", 1)]):
            for _ in range(100):
                now[0] += 1.0
                progress.advance(1)
    lines = terminal.getvalue().split("\r")
    assert len(lines) == 1 + 50 + 1
    assert lines[25] == "[############............] latents: 50 of 100 (50%), 1.0/s, 0:00:50 left\x1b[K"
    assert lines[-1].startswith("latents: rank 0 encoded 100 of 100")
    assert [line.partition(",")[0] for line in log.getvalue().splitlines()] == [
        "latents: 30 of 100 (30%)", "latents: 60 of 100 (60%)", "latents: 90 of 100 (90%)",
        "latents: rank 0 encoded 100 of 100 in 0:01:40 (1.0/s); busy: encode 0% of 1 thread; encode decides about the speed",
    ]  # fmt: skip


def test_ranks_that_do_not_speak_for_all_are_silent() -> None:
    log = io.StringIO()
    progress = Progress("latents", own=1, total=2, speaks=False, stream=log)
    with progress.over([PipelineStage("encode", 1)]):
        progress.advance(1)
    assert log.getvalue() == ""
