"""The environment of ranks: torch's, DeepSpeed's and the thread pools', beside accelerate's.

`shared` must stand before the heavy imports (thread pools and DeepSpeed read it while they load), so the rank host
gets it; `of_rank` is what differs from rank to rank. A command of the job's own numbers its ranks by itself: it gets what
the contract sets, and a few defaults (`of_command`). The webhooks' secrets are the agent's: no process that it
starts gets them (`without_secrets`). The keys of S3 connections and trackers and the tokens of hubs are the ranks' alone
(`credentials`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oarlock_api.contract.environment import POD_IP, Variable, gang_environment
from oarlock_api.contract.secrets import (
    hub_variables,
    is_secret_variable,
    publish_variables,
    s3_variables,
    tracker_variables,
)
from oarlock_trainer.agent.ranks import accelerate_config
from oarlock_trainer.agent.ranks.network_interface import interface_with
from oarlock_trainer.checkpoint.memory.held import FOLDER, RING, folder_of
from oarlock_trainer.health import circuit
from oarlock_trainer.runtime.assignment import MEMBERS
from oarlock_trainer.runtime.cgroup import cpu_limit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oarlock_trainer.agent.ranks.accelerate_config import Launch
    from oarlock_trainer.runtime.assignment import Assignment

_MOST_THREADS = 8
"""More OpenMP threads for each rank gain nothing for the optimizer's and the loader's work, and spin."""


def without_secrets(inherited: Mapping[str, str]) -> dict[str, str]:
    """The container's environment as far as it is anybody's but the agent's own."""
    told = (Variable.HISTORY, Variable.SPEC)
    return {name: value for name, value in inherited.items() if not is_secret_variable(name) and name not in told}


def of_gang(assignment: Assignment) -> dict[str, str]:
    """What the contract sets of the gang in every process: its size, and where it meets."""
    return gang_environment(
        nodes=assignment.nodes,
        gpus_per_node=assignment.job.gpus_per_node,
        address=assignment.master_address,
        port=assignment.master_port,
    )


def credentials(assignment: Assignment, given: Mapping[str, str]) -> dict[str, str]:
    """Of the container's environment, the keys of the job's S3 connections and the token that its model is read with.

    In rank 0's pod also the keys of its trackers and the tokens that the finished model is published with.
    """
    training = assignment.job.whole_training
    needed = s3_variables(training) | hub_variables(training)
    if assignment.pod.rank == 0:
        needed |= tracker_variables(training) | publish_variables(training)
    return {name: given[name] for name in needed if name in given}


def shared(launch: Launch, inherited: Mapping[str, str]) -> dict[str, str]:
    """Variables that are the same on all ranks of this node. What the job itself set (pod.env) stays as it is."""
    assignment = launch.assignment
    defaults = {
        "OMP_NUM_THREADS": str(_threads(assignment)),
        "PYTHONUNBUFFERED": "1",
        "DS_ACCELERATOR": "cpu" if assignment.on_cpu else "cuda",  # asking CUDA would initialize it before the fork
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # the same for torch.cuda.is_available()
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # as NVML counts: a rank's GPU can then be told by its number
    }
    if assignment.on_cpu and launch.dynamo_mode is None:
        defaults["TORCHDYNAMO_DISABLE"] = "1"  # spares DeepSpeed's start 0.9 s of imports
    # Ranks that are all in one pod are reached by nobody else.
    alone = {"GLOO_SOCKET_IFNAME": "lo"} if assignment.job.nodes == 1 else {}
    variables = defaults | _interfaces(inherited) | alone | accelerate_config.environment(launch)
    return {name: inherited.get(name, value) for name, value in variables.items()} | {
        "WORLD_SIZE": str(assignment.world_size),
        "LOCAL_WORLD_SIZE": str(assignment.ranks_per_node),
        "GROUP_RANK": str(assignment.place),
        **of_gang(assignment),
        Variable.OUTPUT_DIR: assignment.job.output_directory,
        circuit.PORT: str(assignment.job.ports.status),
        **_memory(assignment),
        **({MEMBERS: ",".join(map(str, assignment.members))} if assignment.members else {}),
    }


def of_command(assignment: Assignment, inherited: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of the command of spec.custom. What the job itself set (pod.env) stays as it is."""
    defaults = {
        "OMP_NUM_THREADS": str(_threads(assignment)),
        "PYTHONUNBUFFERED": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        circuit.PORT: str(assignment.job.ports.status),
        **_interfaces(inherited),
    }
    if assignment.on_cpu:
        defaults["ACCELERATE_USE_CPU"] = "True"  # `accelerate launch` passes it on to one rank, not to many
    return {**defaults, **inherited}


def of_rank(assignment: Assignment, local_rank: int) -> dict[str, str]:
    """Variables of one rank of this node; a command of the job's own has none of them."""
    return {"RANK": str(assignment.first_rank + local_rank), "LOCAL_RANK": str(local_rank)}


def _memory(assignment: Assignment) -> dict[str, str]:
    job = assignment.job
    if not assignment.keeps_state:
        return {}
    folder = folder_of(job.job_uid, job.attempt, shared_memory=assignment.shared_memory)
    return {FOLDER: str(folder), **({RING: "1"} if assignment.keeps_copies and assignment.nodes > 1 else {})}


def _interfaces(inherited: Mapping[str, str]) -> dict[str, str]:
    interface = interface_with(inherited.get(POD_IP, ""))
    # =: that one, not all whose names begin so.
    return {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": f"={interface}"} if interface else {}


def _threads(assignment: Assignment) -> int:
    # Without a CPU limit a pod can't know its share of the node: one thread, as torchrun does.
    share = (cpu_limit() or 0) / assignment.ranks_per_node
    return min(max(int(share), 1), _MOST_THREADS)
