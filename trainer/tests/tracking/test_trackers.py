"""What a job asks of trackers is checked before it starts; what a real run tells them is what metrics.jsonl has."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from event_files import records
from pydantic import ValidationError

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_api.contract.job_file import JobFile
from oarlock_api.contract.secrets import secret_variable
from oarlock_api.training import Training
from oarlock_trainer.runtime.errors import ConfigurationError
from oarlock_trainer.runtime.job import Job, RankInfo
from oarlock_trainer.tracking import trackers
from oarlock_trainer.tracking.trackers import runs_of

if TYPE_CHECKING:
    from pathlib import Path

    from gang import Gang


def job(*tracking: dict[str, Any], uid: str = "uid", output: str = "/output/flux") -> Job:
    body = {
        "model": {"family": "Flux1", "path": "/models/flux"},
        "steps": 10,
        "data": {"datasets": [{"name": "photos", "source": {"path": "/data"}}]},
        "tracking": list(tracking),
    }
    file = JobFile(
        job="flux", namespace="default", job_uid=uid, attempt=1, nodes=1, gpus_per_node=0, output_directory=output,
        training=body,
    )  # fmt: skip
    rank_info = RankInfo(rank=0, local_rank=0, world_size=1, local_world_size=1)
    return Job(file=file, training=Training.model_validate(body), rank_info=rank_info, simulate_gpus=False)


WANDB = {"name": "w", "type": "Wandb", "secretRef": {"name": "figures"}}


def test_a_tracker_gets_the_keys_of_its_own_secret() -> None:
    environment = {
        secret_variable("figures", "WANDB_API_KEY"): "key\n",
        secret_variable("figures", "MLFLOW_TRACKING_TOKEN"): "token",
        secret_variable("other", "WANDB_ENTITY"): "painters",
    }
    ((_, facts),) = runs_of(job(WANDB), environment)
    assert facts.secrets == {"WANDB_API_KEY": "key"}
    assert "key" not in json.dumps(facts.settings["tracking"])


def test_a_secret_that_gives_nothing_ends_the_job_before_it_starts() -> None:
    with pytest.raises(
        ConfigurationError, match=r"tracking\[w\].secretRef: the Secret figures gives none of WANDB_API_K"
    ):
        runs_of(job(WANDB), {"WANDB_API_KEY": "of the pod"})


def test_a_package_that_the_image_lacks_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trackers, "find_spec", lambda _name: None)
    runs_of(job({"name": "board"}), {})
    with pytest.raises(ConfigurationError, match=r"tracking\[w\].type: Wandb needs .* 'oarlock-trainer\[wandb\]'"):
        runs_of(job({"name": "w", "type": "Wandb"}), {})


def test_mlflow_without_an_address_is_refused_and_with_one_of_the_pod_s_own_is_not() -> None:
    tracker = {"name": "m", "type": "MLflow"}
    with pytest.raises(ConfigurationError, match=r"tracking\[m\].url: MLflow needs"):
        runs_of(job(tracker), {})
    runs_of(job(tracker), {"MLFLOW_TRACKING_URI": "https://mlflow.example.com"})


def test_two_mlflow_servers_are_refused_because_one_would_get_the_other_s_keys() -> None:
    first, second = ({"name": name, "type": "MLflow", "url": f"https://{name}.example.com"} for name in ("a", "b"))
    with pytest.raises(ConfigurationError, match=r"MLflow trackers with different url or secretRef"):
        runs_of(job(first, second), {})
    runs_of(job(first, second | {"url": first["url"]}), {})


def test_a_run_is_told_from_all_others_and_the_same_in_every_attempt() -> None:
    boards = {"name": "a"}, {"name": "b"}
    jobs = [job(*boards), job(*boards, uid="other"), job(*boards, output="/output/other")]
    identities = [facts.identity for one in jobs for _, facts in runs_of(one, {})]
    assert len(set(identities)) == 6
    assert [facts.identity for _, facts in runs_of(jobs[0], {})] == identities[:2]


@pytest.mark.parametrize("field", [{"url": "https://board.example.com"}, {"secretRef": {"name": "figures"}}])
def test_tensorboard_takes_no_address_and_no_secret(field: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="TensorBoard writes files"):
        job({"name": "board"} | field)


def test_a_run_tells_its_trackers_what_its_lines_say(gang: Gang, tmp_path: Path) -> None:
    run = gang.run(tmp_path, gang.training(steps=2, tracking=[{"name": "board", "run": "first try"}]))
    assert run.codes == {0: 0, 1: 0}, gang.log()
    (file,) = (tmp_path / "tensorboard" / "first-try").iterdir()
    told = {
        event.step: {value.tag: value.simple_value for value in event.summary.value}
        for event in records(file.read_bytes())
        if event.summary.value
    }
    every = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    lines = [line for line in every if "loss" in line]
    assert {line["step"]: line["loss"] for line in lines} == pytest.approx(
        {step: figures["loss"] for step, figures in told.items()}
    )
    assert told[1]["seconds/forward"] == pytest.approx(lines[0]["seconds"]["forward"])


def test_a_job_whose_tracker_cannot_be_had_ends_with_the_code_of_its_configuration(gang: Gang, tmp_path: Path) -> None:
    run = gang.run(tmp_path, gang.training(tracking=[{"name": "m", "type": "MLflow"}]), ranks=1)
    assert run.codes == {0: ExitCode.CONFIGURATION}
    assert "training.tracking[m].url" in run.failure
