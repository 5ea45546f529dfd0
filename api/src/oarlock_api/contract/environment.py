"""The environment of a pod: every variable that the operator or the agent sets, and nobody else may."""

from __future__ import annotations

from enum import StrEnum

from oarlock_api.contract.names import host_name, service_name

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
    HISTORY = "OARLOCK_HISTORY"
    """What the operator tells rank 0's agent of earlier attempts (history.OperatorNotes). Not in job.json, either."""
    INCARNATION = "OARLOCK_INCARNATION"
    """How often the pod of this rank was made within its attempt; absent = 1. Not in job.json, as CLUSTER."""
    FOLLOWS_THE_DEAD = "OARLOCK_FOLLOWS_THE_DEAD"
    """"1": the operator saw that nothing of the pod before it runs any more."""
    SURGE = "OARLOCK_SURGE"
    """"1": the pod before it still trains. It makes itself ready, and takes its place once that one has left."""
    REPLACES_PODS = "OARLOCK_REPLACES_PODS"
    """"1" in each pod of a gang whose lost pods are replaced one by one."""
    BACKOFF = "OARLOCK_BACKOFF"
    """recovery.backoffSeconds and maxBackoffSeconds, for rank 0's agent, with a blank between; absent: their defaults."""
    SPEC = "OARLOCK_SPEC"
    """The job's settings without what looks secret, which rank 0's agent keeps in the output (kept_spec.settings)."""


SIMULATE_GPUS = "OARLOCK_SIMULATE_GPUS"
"""The one OARLOCK_ variable that a job sets itself: nodes advertise GPUs, ranks compute on the CPU."""

POD_IP = "OARLOCK_POD_IP"
"""The pod's address, in the node's network (spec.pod.hostNetwork) only: NCCL and gloo take the interface that has it."""

ROUND = "OARLOCK_ROUND"
"""Which round of its attempt a rank, or the job's own command, is started for, from 1 on. The agent sets it."""
TERM = "OARLOCK_TERM"
"""Beside ROUND where rank 0's pod was made anew: which one of them leads the round. Not there for the first."""

RESERVED = frozenset(str(variable) for variable in Variable)


def is_reserved(name: str) -> bool:
    """Tell whether a job's own env may not set `name`."""
    return name in RESERVED or (name.startswith("OARLOCK_") and name != SIMULATE_GPUS)


def processes_per_node(gpus_per_node: int) -> int:
    """Ranks on one node: one per GPU, or one on the CPU when the job asks for no GPU."""
    return max(gpus_per_node, 1)


def rendezvous_address(*, job: str, namespace: str, nodes: int) -> str:
    """Where the ranks meet: rank 0's name; one node meets on its own address, and needs neither a name nor a Service."""
    return f"{host_name(job, 0)}.{service_name(job)}.{namespace}.svc" if nodes > 1 else LOCALHOST


def pod_environment(*, job: str, attempt: int, rank: int, output_directory: str) -> dict[str, str]:
    """Who a pod is, and where its output lies: so that a variable of the job's own may refer to it.

    POD_UID and NODE come from the downward API. The rest stands in job.json, which each pod has anyway: the agent sets it
    (gang_environment) for what it starts.
    """
    return {
        Variable.MACHINE_RANK: str(rank),
        Variable.JOB: job,
        Variable.ATTEMPT: str(attempt),
        Variable.OUTPUT_DIR: output_directory,
    }


def gang_environment(*, nodes: int, gpus_per_node: int, address: str, port: int) -> dict[str, str]:
    """How large the gang is and where it meets, in the words of accelerate and of torch."""
    return {
        Variable.NUM_MACHINES: str(nodes),
        Variable.NUM_PROCESSES: str(nodes * processes_per_node(gpus_per_node)),
        Variable.GPUS_PER_NODE: str(gpus_per_node),
        Variable.MAIN_PROCESS_IP: address,
        Variable.MAIN_PROCESS_PORT: str(port),
        Variable.MASTER_ADDR: address,
        Variable.MASTER_PORT: str(port),
    }


SET_BY_THE_AGENT = tuple(gang_environment(nodes=1, gpus_per_node=0, address="", port=0))
"""Names that the pod itself does not have: Kubernetes leaves $(NAME) of them in other variables as it stands."""
