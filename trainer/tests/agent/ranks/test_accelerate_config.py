"""The job in accelerate's words, compared with accelerate itself."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from oarlock_api.contract.job_file import JobFile
from oarlock_api.contract.rounds import InPlace
from oarlock_api.contract.secrets import secret_variable
from oarlock_api.contract.sections import MemoryState, Recovery
from oarlock_trainer.agent.ranks import accelerate_config, rank_environment
from oarlock_trainer.runtime.assignment import Assignment, Pod

if TYPE_CHECKING:
    from pathlib import Path


IN_MEMORY = "/dev/shm/oarlock-uid-a4"


def assignment(training: dict[str, Any], *, nodes: int = 4, gpus: int = 8, simulate: bool = False) -> Assignment:
    job = JobFile(
        job="flux",
        namespace="default",
        job_uid="u",
        attempt=1,
        nodes=nodes,
        gpus_per_node=gpus,
        output_directory="/output/flux",
        training=training,
    )
    pod = Pod(rank=nodes - 1, job="flux", attempt=1, pod_uid="p", node="n")
    return Assignment(pod=pod, job=job, master_address="flux-0.flux", master_port=29501, simulate_gpus=simulate)


JOBS = [
    pytest.param({}, id="defaults"),
    pytest.param({"method": "LoRA", "precision": "BF16"}, id="LoRA on DDP"),
    pytest.param(
        {
            "method": "Full",
            "gradientAccumulation": 4,
            "engine": {"strategy": "DeepSpeed", "zeroStage": 2, "offloadOptimizer": "CPU"},
            "gradientClipping": {"method": "Norm", "max": 0.5},
            "compile": {"mode": "MaxAutotune", "dynamic": True, "fullGraph": True},
        },
        id="everything set",
    ),
]


@pytest.mark.parametrize("training", JOBS)
def test_ranks_get_the_environment_that_accelerates_own_launcher_would_give_them(
    training: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = pytest.importorskip("accelerate.utils.launch")
    command = pytest.importorskip("accelerate.commands.launch")
    for name in [name for name in os.environ if name.startswith("ACCELERATE_")]:
        monkeypatch.delenv(name)
    launch = accelerate_config.plan_launch(assignment(training))
    path = tmp_path / accelerate_config.FILE_NAME
    path.write_text(accelerate_config.render(launch))
    options = command.launch_command_parser().parse_args(["--config_file", str(path), "train.py"])
    rendered = yaml.safe_load(path.read_text())
    options, _, _ = command._validate_launch_command(options)
    if options.use_deepspeed:
        options.deepspeed_fields_from_accelerate_config = [*rendered["deepspeed_config"], "mixed_precision"]
        _, theirs = launcher.prepare_deepspeed_cmd_env(options)
    else:
        theirs = launcher.prepare_multi_gpu_env(options)
    ours = accelerate_config.environment(launch)
    known = {name: value for name, value in theirs.items() if name.startswith("ACCELERATE_")}
    assert known  # that they are set at all
    # The list of the file's fields names the multi-node launcher too, and our ranks have no launcher.
    theirs_alone = {name for name in known if name not in ours or name == "ACCELERATE_CONFIG_DS_FIELDS"}
    assert {name: ours[name] for name in known.keys() - theirs_alone} == {
        name: known[name] for name in known.keys() - theirs_alone
    }
    # With DeepSpeed its launcher drops what the file says about the compiler; without, it sets also what is off.
    compiler = {name for name in known.keys() | ours.keys() if name.startswith("ACCELERATE_DYNAMO_")}
    assert theirs_alone | (ours.keys() - known.keys()) <= compiler | {"ACCELERATE_CONFIG_DS_FIELDS"}
    assert (options.rdzv_backend, options.rdzv_endpoint) == ("static", "flux-0.flux:29501")
    assert (options.nnodes, options.nproc_per_node, options.node_rank) == ("4", "8", 3)


@pytest.mark.parametrize(
    ("training", "is_open"),
    [
        ({}, False),
        ({"gradientAccumulation": 4}, True),
        ({"batchSize": 2, "effectiveBatch": 66}, True),
        ({"batchSize": 2, "effectiveBatch": 64}, False),
        ({"engine": {"overlapCommunication": False}}, True),
        ({"gradientAccumulation": 4, "method": "LoRA"}, False),
        ({"gradientAccumulation": 4, "engine": {"strategy": "DeepSpeed"}}, False),
        ({"gradientAccumulation": 4, "engine": {"strategy": "DDP"}}, False),
    ],
)
def test_a_stage_that_the_planner_may_choose_is_called_open_and_told_to_no_rank(
    *, training: dict[str, Any], is_open: bool
) -> None:
    launch = accelerate_config.plan_launch(assignment(training))
    assert ("the planner may take 2 instead" in accelerate_config.render(launch)) == is_open
    told = "ACCELERATE_DEEPSPEED_ZERO_STAGE" in accelerate_config.environment(launch)
    assert told == (launch.zero_stage is not None and not is_open)


def test_the_contracts_fields_are_all_in_the_file() -> None:
    training = {"compile": {"mode": "Default"}}
    rendered = yaml.safe_load(accelerate_config.render(accelerate_config.plan_launch(assignment(training))))
    contract = "compute_environment distributed_type deepspeed_config dynamo_config machine_rank main_process_ip "
    contract += "main_process_port num_machines num_processes rdzv_backend mixed_precision"
    assert set(contract.split()) <= rendered.keys()
    assert rendered["rdzv_backend"] == "static"


@pytest.mark.parametrize("highest", [1, 0.5, 1e-05, 1.5e-07, 1e22])
def test_the_file_holds_numbers_that_yaml_reads_as_numbers(highest: float) -> None:
    training = {"gradientClipping": {"method": "Norm", "max": highest}}
    rendered = yaml.safe_load(accelerate_config.render(accelerate_config.plan_launch(assignment(training))))
    clipping = rendered["deepspeed_config"]["gradient_clipping"]
    assert isinstance(clipping, float)
    assert clipping == highest


def test_on_the_cpu_deepspeed_is_told_so_and_the_compiler_stays_unloaded() -> None:
    launch = accelerate_config.plan_launch(assignment({}, gpus=2, simulate=True))
    variables = rank_environment.shared(launch, {})
    assert (variables["DS_ACCELERATOR"], variables["TORCHDYNAMO_DISABLE"]) == ("cpu", "1")
    assert variables["ACCELERATE_USE_CPU"] == "True"


def test_a_compiled_job_keeps_the_compiler_also_on_the_cpu() -> None:
    launch = accelerate_config.plan_launch(assignment({"compile": {"mode": "Default"}}, gpus=0))
    assert "TORCHDYNAMO_DISABLE" not in rank_environment.shared(launch, {})


def test_on_gpus_nothing_asks_cuda_before_the_fork() -> None:
    variables = rank_environment.shared(accelerate_config.plan_launch(assignment({})), {})
    assert (variables["DS_ACCELERATOR"], variables["PYTORCH_NVML_BASED_CUDA_CHECK"]) == ("cuda", "1")


def test_what_the_job_sets_itself_stays_as_it_is() -> None:
    launch = accelerate_config.plan_launch(assignment({}))
    variables = rank_environment.shared(launch, {"OMP_NUM_THREADS": "7", "WORLD_SIZE": "1"})
    assert (variables["OMP_NUM_THREADS"], variables["WORLD_SIZE"]) == ("7", "32")


@pytest.mark.parametrize(
    ("in_place", "every", "told"),
    [
        (InPlace.AUTO, "0", None),
        (InPlace.AUTO, "Auto", IN_MEMORY),
        (InPlace.AUTO, "3", IN_MEMORY),
        (InPlace.NEVER, "3", None),
    ],
)
def test_ranks_whose_state_is_kept_in_memory_are_told_the_folder_of_their_attempt(
    in_place: InPlace, every: str, told: str | None
) -> None:
    job = assignment({})
    recovery = Recovery(in_place=in_place, memory=MemoryState(every_steps=every))
    job = replace(job, job=replace(job.job, recovery=recovery, job_uid="uid", attempt=4))
    variables = rank_environment.shared(accelerate_config.plan_launch(job), {})
    assert variables.get("OARLOCK_MEMORY") == told


def test_ranks_get_the_keys_of_s3_connections_and_no_other_secret() -> None:
    key, hook = secret_variable("r2", "AWS_SECRET_ACCESS_KEY"), secret_variable("hooks", "url")
    given = {key: "a", hook: "b", "HOME": "/"}
    job = assignment({"s3Connections": [{"name": "default", "credentialsSecretRef": {"name": "r2"}}, {"name": "aws"}]})
    assert rank_environment.without_secrets(given) == {"HOME": "/"}
    assert rank_environment.credentials(job, given) == {key: "a"}
    assert rank_environment.credentials(assignment({}), given) == {}


def test_the_pod_of_rank_0_alone_gets_the_keys_of_trackers() -> None:
    training = {"tracking": [{"name": "board"}, {"name": "w", "type": "Wandb", "secretRef": {"name": "figures"}}]}
    key, other = secret_variable("figures", "WANDB_API_KEY"), secret_variable("figures", "AWS_ACCESS_KEY_ID")
    given = {key: "a", other: "b"}
    assert rank_environment.credentials(assignment(training, nodes=1), given) == {key: "a"}
    assert rank_environment.credentials(assignment(training, nodes=2), given) == {}


def test_ranks_get_the_token_that_the_model_is_read_with_and_rank_0_s_pod_those_that_may_write() -> None:
    read, write = secret_variable("hub", "read"), secret_variable("hub", "write")
    model = {"family": "Flux1", "hub": {"repo": "o/m", "tokenSecretRef": {"name": "hub", "key": "read"}}}
    target = {"repo": "o/n", "tokenSecretRef": {"name": "hub", "key": "write"}}
    published = [{"name": "hub", "hub": target}, {"name": "s3", "s3": {"bucket": "b"}}]
    training = {"model": model, "publish": published}
    given = {read: "a", write: "b", secret_variable("hooks", "url"): "c"}
    assert rank_environment.credentials(assignment(training, nodes=1), given) == {read: "a", write: "b"}
    assert rank_environment.credentials(assignment(training, nodes=2), given) == {read: "a"}
