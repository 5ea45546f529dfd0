"""`accelerate launch --config_file /run/oarlock/accelerate.yaml`, for real, on two nodes that are this machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from agent_process import Agent, free_port

from oarlock_api.contract.job_file import JobFile
from oarlock_api.contract.sections import Custom
from oarlock_trainer.agent.ranks import accelerate_config
from oarlock_trainer.runtime.assignment import Assignment, Pod

if TYPE_CHECKING:
    from collections.abc import Iterator


SCRIPT = str(Path(__file__).parents[1] / "support" / "accelerated.py")


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[tuple[Agent, Agent]]:
    """Nodes 0 and 1 of a job with two GPUs each, which are pretended."""
    link, rendezvous = free_port(), free_port()
    agents = []
    for rank in range(2):
        (tmp_path / str(rank)).mkdir()
        agent = Agent(tmp_path / str(rank))
        agent.job["ports"]["link"] = link
        agent.job["preflight"]["storage"] = False
        agent.environment |= {"MACHINE_RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(rendezvous)}
        agents.append(agent)
    yield agents[0], agents[1]
    for agent in agents:
        agent.end()


@pytest.mark.deep
def test_all_ranks_of_all_nodes_meet_by_the_file_alone(gang: tuple[Agent, Agent], bundle: Path) -> None:
    for agent in gang:
        file = str(agent.scratch / "run" / "accelerate.yaml")
        launch = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", file, SCRIPT]
        agent.start_bundled(bundle, launch)
    for node, agent in enumerate(gang):
        assert agent.wait() == 0, agent.log_path.read_text()
        for local in range(2):
            told = json.loads((agent.scratch / f"told-{2 * node + local}").read_text())
            assert told == {"ranks": [0, 1, 2, 3], "processes": 4, "local": local, "device": "cpu", "precision": "no"}


def rendered(*, nodes: int, gpus: int, simulate: bool = False) -> dict[str, Any]:
    job = JobFile(
        job="flux",
        namespace="default",
        job_uid="u",
        attempt=1,
        nodes=nodes,
        gpus_per_node=gpus,
        output_directory="/output/flux",
        training={},
        custom=Custom(command=("train",)),
    )
    pod = Pod(rank=nodes - 1, job="flux", attempt=1, pod_uid="p", node="n")
    place = Assignment(pod=pod, job=job, master_address="flux-0.flux", master_port=29501, simulate_gpus=simulate)
    found: dict[str, Any] = yaml.safe_load(accelerate_config.render(accelerate_config.plain_launch(place)))
    return found


def test_on_gpus_the_file_says_the_gang_and_nothing_that_is_the_trainers_own_choice() -> None:
    assert rendered(nodes=4, gpus=8) == {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "MULTI_GPU",
        "machine_rank": 3,
        "main_process_ip": "flux-0.flux",
        "main_process_port": 29501,
        "main_training_function": "main",
        "mixed_precision": "no",
        "num_machines": 4,
        "num_processes": 32,
        "rdzv_backend": "static",
        "use_cpu": False,
    }


@pytest.mark.parametrize(
    ("place", "kind", "processes"),
    [
        ({"nodes": 2, "gpus": 2, "simulate": True}, "MULTI_GPU", 4),
        ({"nodes": 2, "gpus": 0}, "MULTI_GPU", 2),
        ({"nodes": 1, "gpus": 0}, "NO", 1),
    ],
)
def test_on_the_cpu_it_says_so_and_asks_for_the_launcher_that_starts_many(
    place: dict[str, Any], kind: str, processes: int
) -> None:
    file = rendered(**place)
    assert (file["distributed_type"], file["num_processes"], file["use_cpu"]) == (kind, processes, True)
