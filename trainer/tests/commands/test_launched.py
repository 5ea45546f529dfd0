"""`accelerate launch -m oarlock_trainer train`: the job's ranks, started by accelerate on every machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from agent_process import free_port
from gang import losses_in

from oarlock_api.contract.job_file import JobFile
from oarlock_local import patience
from oarlock_trainer.agent.ranks import accelerate_config
from oarlock_trainer.cli import main
from oarlock_trainer.commands import launched
from oarlock_trainer.runtime.assignment import Assignment, AssignmentError, Pod

if TYPE_CHECKING:
    from gang import Gang


SUPPORT = Path(__file__).parents[1] / "support"


def assignment(training: dict[str, Any], *, machine: int = 0, port: int = 29500, **facts: Any) -> Assignment:
    fields = {"nodes": 2, "gpus_per_node": 0, "output_directory": "/output/flux"} | facts
    job = JobFile(job="flux", namespace="default", job_uid="u", attempt=1, training=training, **fields)
    pod = Pod(rank=machine, job="flux", attempt=1, pod_uid="", node="")
    simulated = job.gpus_per_node > 0
    return Assignment(pod=pod, job=job, master_address="127.0.0.1", master_port=port, simulate_gpus=simulated)


def launch(
    folder: Path, job: Path, *machines: Assignment, flags: tuple[str, ...] = (), program: tuple[str, ...] = ()
) -> list[tuple[int, str]]:
    """accelerate's launcher on each machine, with the file that a pod would have; exit codes, and what was said."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ACCELERATE_")}
    environment |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(SUPPORT)}
    environment |= {"OARLOCK_SIMULATE_GPUS": "1"} if machines[0].simulate_gpus else {}
    started = []
    for machine in machines:
        file = folder / f"accelerate-{machine.pod.rank}.yaml"
        file.write_text(accelerate_config.render(accelerate_config.plan_launch(machine)))
        command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(file), *flags]
        command += ["-m", "oarlock_trainer", "train", str(job), *program]
        started.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
    said = [one.communicate(timeout=patience.SECONDS)[1] for one in started]
    return [(one.returncode, words) for one, words in zip(started, said, strict=True)]


@pytest.mark.deep
def test_two_machines_that_accelerate_launches_train_as_two_ranks_of_a_pod_do(gang: Gang, tmp_path: Path) -> None:
    training = gang.training(steps=4, checkpoint={})
    alike = gang.run(tmp_path / "pod", training)
    assert alike.codes == {0: 0, 1: 0}, gang.log()
    port = free_port()
    machines = [
        assignment(training, machine=machine, port=port, output_directory=str(tmp_path / "launched"))
        for machine in range(2)
    ]
    job = tmp_path / "job.json"
    job.write_text(machines[0].job.to_json())
    for code, said in launch(tmp_path, job, *machines):
        assert code == 0, said[-4000:]
    assert losses_in(tmp_path / "launched") == losses_in(tmp_path / "pod")


@pytest.mark.deep
def test_launched_ranks_that_are_asked_to_leave_save_and_the_same_command_goes_on_as_ranks_of_a_pod_train(
    gang: Gang, tmp_path: Path
) -> None:
    # The machines above have the one engine, this one has the other, which accelerate starts otherwise.
    training = gang.training(steps=6, method="LoRA", checkpoint={})
    whole = gang.run(tmp_path / "whole", training)
    one = assignment(training, nodes=1, gpus_per_node=2, port=free_port(), output_directory=str(tmp_path / "left"))
    job = tmp_path / "job.json"
    job.write_text(one.job.to_json())
    ((code, said),) = launch(tmp_path, job, one, program=("--program", "leaving_ranks:main"))
    assert code != 0, said[-4000:]
    before = losses_in(tmp_path / "left")
    assert 2 in before
    assert 6 not in before
    ((code, said),) = launch(tmp_path, job, one)
    assert code == 0, said[-4000:]
    assert losses_in(tmp_path / "left") == whole.losses
    assert losses_in(tmp_path / "left").keys() > before.keys()


@pytest.mark.deep
def test_what_accelerates_configuration_says_against_the_job_ends_all_ranks_with_both_words(tmp_path: Path) -> None:
    one = assignment({"engine": {"zeroStage": 1}}, nodes=1, gpus_per_node=2, port=free_port())
    job = tmp_path / "job.json"
    job.write_text(one.job.to_json())
    ((code, said),) = launch(tmp_path, job, one, flags=("--zero_stage", "3"))
    assert code != 0
    assert "zero_stage (ACCELERATE_DEEPSPEED_ZERO_STAGE=3) where training.engine.zeroStage makes it 1" in said


PLACE = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1"}


@pytest.mark.parametrize(
    ("told", "field"),
    [
        ({"ACCELERATE_MIXED_PRECISION": "fp16"}, "training.precision"),
        ({"ACCELERATE_USE_FSDP": "true"}, "training.engine.strategy"),
        ({"ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "4"}, "training.gradientAccumulation"),
        ({"ACCELERATE_GRADIENT_CLIPPING": "0.5"}, "training.gradientClipping.max"),
        ({"ACCELERATE_DYNAMO_BACKEND": "INDUCTOR"}, "training.compile.mode"),
        ({"ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE": "cpu"}, "training.engine makes it none"),
        ({"ACCELERATE_DEEPSPEED_CONFIG_FILE": "/zero.json"}, "training.engine makes it none"),
    ],
)
def test_each_choice_of_accelerates_that_is_not_the_jobs_is_named_with_the_jobs_field(
    told: dict[str, str], field: str
) -> None:
    with pytest.raises(AssignmentError, match=field) as refused:
        launched.check(assignment({}), PLACE | told)
    assert f"{next(iter(told))}={next(iter(told.values())).lower()}" in str(refused.value)


@pytest.mark.parametrize("training", [{}, {"method": "LoRA"}, {"gradientAccumulation": 4, "precision": "BF16"}])
def test_what_says_the_same_as_the_job_or_nothing_is_taken(training: dict[str, Any]) -> None:
    one = assignment(training)
    launched.check(one, PLACE)
    launched.check(one, PLACE | accelerate_config.environment(accelerate_config.plan_launch(one)))
    launched.check(one, PLACE | {"ACCELERATE_MIXED_PRECISION": "no", "ACCELERATE_DYNAMO_BACKEND": "NO"})


def test_another_number_of_processes_than_the_jobs_is_refused_with_the_number_that_it_should_be() -> None:
    with pytest.raises(AssignmentError, match="set num_processes to 32 and num_machines to 4"):
        launched.check(assignment({}, nodes=4, gpus_per_node=8), {"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8"})


def test_preprocess_that_would_start_all_ranks_in_each_of_them_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("RANK", "1"), ("TORCHELASTIC_RUN_ID", "none")):
        monkeypatch.setenv(name, value)
    (tmp_path / "job.json").write_text(assignment({}).job.to_json())
    assert main(["preprocess", str(tmp_path / "job.json")]) == 85
    assert "without a launcher" in capsys.readouterr().err
