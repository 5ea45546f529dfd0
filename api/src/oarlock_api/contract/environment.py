"""The environment of a pod: every variable that the operator sets, and nobody else may."""

from __future__ import annotations

from enum import StrEnum

RENDEZVOUS_PORT = 29500
STATUS_PORT = 9400
LINK_PORT = 9401
LOCALHOST = "127.0.0.1"
CONFIG_PATH = "/etc/oarlock/job.json"
RUN_DIRECTORY = "/run/oarlock"
AGENT_FILE = "agent.pyz"
"""Name, in the run directory, of the agent in one file, which the trainer image brings into pods of other images."""
TERMINATION_LOG = "/dev/termination-log"


class Variable(StrEnum):
    """A variable's name. Reserved: a job's own env may not set it."""

    MACHINE_RANK = "MACHINE_RANK"
    NUM_MACHINES = "NUM_MACHINES"
    NUM_PROCESSES = "NUM_PROCESSES"
    GPUS_PER_NODE = "GPUS_PER_NODE"
    MAIN_PROCESS_IP = "MAIN_PROCESS_IP"
    MAIN_PROCESS_PORT = "MAIN_PROCESS_PORT"
    MASTER_ADDR = "MASTER_ADDR"
    MASTER_PORT = "MASTER_PORT"
    JOB = "OARLOCK_JOB"
    ATTEMPT = "OARLOCK_ATTEMPT"
    POD_UID = "OARLOCK_POD_UID"
    NODE = "OARLOCK_NODE"
    OUTPUT_DIR = "OARLOCK_OUTPUT_DIR"
    CONFIG = "OARLOCK_CONFIG"
    """Where job.json lies, outside of pods: in one it is at CONFIG_PATH."""
    CLUSTER = "OARLOCK_CLUSTER"
    """Which cluster the job is in. Not in job.json: an image of an earlier release refuses a field that it does not know."""


SIMULATE_GPUS = "OARLOCK_SIMULATE_GPUS"
"""The one OARLOCK_ variable that a job sets itself: nodes advertise GPUs, ranks compute on the CPU."""

POD_IP = "OARLOCK_POD_IP"
"""The pod's address, in the node's network (spec.pod.hostNetwork) only: NCCL and gloo take the interface that has it."""

RESERVED = frozenset(str(variable) for variable in Variable)


def is_reserved(name: str) -> bool:
    """Tell whether a job's own env may not set `name`."""
    return name in RESERVED or (name.startswith("OARLOCK_") and name != SIMULATE_GPUS)


def processes_per_node(gpus_per_node: int) -> int:
    """Ranks on one node: one per GPU, or one on the CPU when the job asks for no GPU."""
    return max(gpus_per_node, 1)


def gang_environment(
    *, job: str, namespace: str, attempt: int, rank: int, nodes: int, gpus_per_node: int, port: int
) -> dict[str, str]:
    """The values known before the pod exists. POD_UID and NODE come from the downward API; more stands in job.json."""
    # One node meets on its own address, and needs neither a name nor a Service.
    master = f"{job}-0.{job}.{namespace}.svc" if nodes > 1 else LOCALHOST
    return {
        Variable.MACHINE_RANK: str(rank),
        Variable.NUM_MACHINES: str(nodes),
        Variable.NUM_PROCESSES: str(nodes * processes_per_node(gpus_per_node)),
        Variable.GPUS_PER_NODE: str(gpus_per_node),
        Variable.MAIN_PROCESS_IP: master,
        Variable.MAIN_PROCESS_PORT: str(port),
        Variable.MASTER_ADDR: master,
        Variable.MASTER_PORT: str(port),
        Variable.JOB: job,
        Variable.ATTEMPT: str(attempt),
    }
