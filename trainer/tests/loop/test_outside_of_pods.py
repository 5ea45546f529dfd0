"""What a rank says that no agent started: it stands on somebody's machine, and no pod is to be mended."""

from __future__ import annotations

import json
import os
import pickle
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from oarlock_trainer.ranks import preload
from oarlock_trainer.runtime.errors import ConfigurationError, NotThereError
from oarlock_trainer.runtime.job import read_job

if TYPE_CHECKING:
    from pathlib import Path

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled

from oarlock_trainer.engine.process_group import choose_device  # noqa: E402
from oarlock_trainer.loop import train  # noqa: E402


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of the one rank of a job whose model is not here."""
    training = {
        "model": {"family": "Flux1", "path": str(tmp_path / "nowhere")}, "steps": 1,
        "data": {"datasets": [{"name": "photos", "source": {"path": "/data"}}]},
    }  # fmt: skip
    job = {
        "version": 2, "job": "flux", "namespace": "default", "job_uid": "uid", "attempt": 1, "nodes": 1,
        "gpus_per_node": 2, "output_directory": str(tmp_path), "training": training,
    }  # fmt: skip
    (tmp_path / "job.json").write_text(json.dumps(job))
    place = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    for name, value in {**place, "OARLOCK_CONFIG": str(tmp_path / "job.json")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("OARLOCK_AGENT_FD", raising=False)


@pytest.mark.usefixtures("alone")
def test_a_path_that_is_not_here_is_told_with_how_to_say_where_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert train.main() == 85
    said = capsys.readouterr().err
    assert f"training.model.path: {tmp_path}/nowhere is no folder here" in said
    assert said.index("--path POD=HERE") < said.index("mount it with pod.volumes")
    monkeypatch.setenv("OARLOCK_AGENT_FD", str(os.open(tmp_path / "agent", os.O_CREAT | os.O_WRONLY)))
    assert train.main() == 85
    said = capsys.readouterr().err + (tmp_path / "agent").read_text()
    assert "mount it with pod.volumes" in said
    assert "--path" not in said


def test_a_path_that_is_not_there_reaches_other_ranks_with_both_remedies() -> None:
    told = pickle.loads(pickle.dumps(NotThereError.of("training.model.path: /m is no folder here", "mount it")))  # noqa: S301
    assert str(told) == "training.model.path: /m is no folder here: mount it"
    assert "--path POD=HERE" in told.outside_of_pods


@pytest.mark.usefixtures("alone")
@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA finds GPUs here")
def test_gpus_that_are_not_there_are_the_machines_own_and_in_a_pod_also_the_clusters() -> None:
    job = read_job(os.environ)
    with pytest.raises(
        ConfigurationError, match="finds none on this machine: check its driver with nvidia-smi"
    ) as here:
        choose_device(job)
    assert "pod" not in str(here.value)
    with pytest.raises(ConfigurationError, match=r"finds none in this pod: .*the device plugin"):
        choose_device(replace(job, node="gpu-7"))
