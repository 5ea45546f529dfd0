"""What this pod is told: who it is in its gang (environment), what the job asks for (job.json), and the gang's key.

All are read once, at the edge, and strictly: a pod that misunderstands its job must say so (exit code 85) instead of
training something else.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oarlock_api.contract.environment import (
    CONFIG_PATH,
    RENDEZVOUS_PORT,
    SIMULATE_GPUS,
    STATUS_PORT,
    Variable,
    processes_per_node,
    rendezvous_address,
)
from oarlock_api.contract.gang_key import KEY_FIELD, attempt_key
from oarlock_api.contract.job_file import JobFile, parse_job_file
from oarlock_api.contract.names import host_name, service_name
from oarlock_api.contract.rounds import InPlace
from oarlock_api.contract.wire import WireError

if TYPE_CHECKING:
    from collections.abc import Mapping

Address = tuple[str, int]
"""Host and port."""
PEERS = "OARLOCK_PEERS"
"""Environment variable, outside of pods alone: HOST:PORT of each pod's /status, in the order of their ranks, with commas."""
SHARED_MEMORY = "OARLOCK_SHARED_MEMORY"
"""Environment variable, outside of pods alone: what is this agent's /dev/shm where several share a machine's."""
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the pod's own volume
COLLECTIVE_SECONDS = "OARLOCK_COLLECTIVE_SECONDS"
"""Environment variable of ranks that are to begin with the collective check: its time."""
MEMBERS = "OARLOCK_MEMBERS"
"""Environment variable of ranks whose round has other pods than 0..nodes-1 in order: their ranks by place, with commas."""


class AssignmentError(ValueError):
    """The environment or job.json is not what this image understands. The message says what to mend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """Who this pod is. `rank` is the node's rank; texts are empty where the environment does not say.

    `incarnation` counts the pods of this rank within the attempt; `follows_the_dead`: nothing of the one before it runs any
    more. `surge`: that one still trains, and this pod takes its place once it has left. `replaces_pods`: pods of its gang
    that are lost are replaced one by one, while the others stand by. `backoff`:
    seconds before the second start in a row after failures of the program, and the longest; None where nothing is said.
    """

    rank: int
    job: str
    attempt: int
    pod_uid: str
    node: str
    incarnation: int = 1
    follows_the_dead: bool = True
    surge: bool = False
    replaces_pods: bool = False
    backoff: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The pod's place in the gang, and its job.

    `members` are the pods of its ranks' round by place, where these are not 0..nodes-1 in order. Ranks count by places: a pod
    that has none, as a spare, has numbers that no rank of a round has.
    """

    pod: Pod
    job: JobFile
    master_address: str
    master_port: int
    simulate_gpus: bool
    key: bytes | None = field(default=None, repr=False)
    """The attempt's key; None where the gang has none: one node, or an operator that gives no keys."""
    peers: tuple[Address, ...] = ()
    """Where the agent of each pod answers, in the order of their ranks."""
    shared_memory: Path = Path(_SHARED_MEMORY)
    members: tuple[int, ...] = ()

    @property
    def pods(self) -> int:
        """Pods of the whole gang, spares among them."""
        return self.job.nodes + self.job.spares

    @property
    def nodes(self) -> int:
        """Pods of the round."""
        return len(self.members) or self.job.nodes

    @property
    def is_spare(self) -> bool:
        """Whether this pod is of no first round, and waits for a place in a later one."""
        return self.pod.rank >= self.job.nodes

    @property
    def keeps_state(self) -> bool:
        """Whether the newest state of its ranks is kept in its memory: no rank would ever start anew beside it otherwise."""
        recovery = self.job.recovery
        return recovery.in_place == InPlace.AUTO and recovery.memory.every_steps != "0"

    @property
    def keeps_copies(self) -> bool:
        """Whether it keeps that of the node before it as well. Without a key nobody may have it."""
        several = self.pod.replaces_pods and self.job.nodes > 1
        return self.keeps_state and several and self.key is not None and self.job.custom is None

    @property
    def place(self) -> int:
        """This pod's among those of the round."""
        return self.members.index(self.pod.rank) if self.members else self.pod.rank

    @property
    def ranks_per_node(self) -> int:
        """Ranks that this pod runs."""
        return processes_per_node(self.job.gpus_per_node)

    @property
    def first_rank(self) -> int:
        """Global rank of the pod's first process."""
        return self.place * self.ranks_per_node

    @property
    def world_size(self) -> int:
        """Ranks of the whole round."""
        return self.nodes * self.ranks_per_node

    def of_round(self, members: tuple[int, ...]) -> Assignment:
        """The same for the ranks of a round that has these pods by place, this one among them."""
        return replace(self, members=() if members == tuple(range(self.job.nodes)) else members)

    @property
    def on_cpu(self) -> bool:
        """Whether the ranks compute on the CPU, because the job asks for no GPUs or for pretended ones."""
        return self.job.gpus_per_node == 0 or self.simulate_gpus


def read_pod(environment: Mapping[str, str]) -> Pod:
    """Identity alone, so that even a pod without a readable job.json can report. Never raises."""
    incarnation = _whole(environment.get(Variable.INCARNATION)) or 1
    return Pod(
        rank=_whole(environment.get(Variable.MACHINE_RANK)) or 0,
        job=environment.get(Variable.JOB, ""),
        attempt=_whole(environment.get(Variable.ATTEMPT)) or 0,
        pod_uid=environment.get(Variable.POD_UID, ""),
        node=environment.get(Variable.NODE, ""),
        incarnation=incarnation,
        follows_the_dead=incarnation == 1 or environment.get(Variable.FOLLOWS_THE_DEAD) == "1",
        surge=incarnation > 1 and environment.get(Variable.SURGE) == "1",
        replaces_pods=environment.get(Variable.REPLACES_PODS) == "1",
        backoff=_two_whole(environment.get(Variable.BACKOFF, "")),
    )


def read_assignment(environment: Mapping[str, str], *, in_pod: bool = False) -> Assignment:
    """Read the environment and the job file that it names.

    `in_pod`: where the ranks meet is what job.json says, whatever an image or spec.pod.envFrom has put into the environment.

    Raises ConfigurationError with one sentence that says what is wrong and where.
    """
    path = Path(environment.get(Variable.CONFIG) or CONFIG_PATH)
    job = _read_job(path)
    if not environment.get(Variable.MACHINE_RANK):
        raise AssignmentError("MACHINE_RANK is not set: the operator sets it in every pod of a job")
    rank, port = (_whole(environment.get(name)) for name in (Variable.MACHINE_RANK, Variable.MASTER_PORT))
    pods = job.nodes + job.spares
    if rank is None or rank >= pods:
        spares = f" and {job.spares} spares" if job.spares else ""
        raise AssignmentError(
            f"MACHINE_RANK is {environment[Variable.MACHINE_RANK]!r}, a job of {job.nodes} nodes{spares} has 0..{pods - 1}"
        )
    told = in_pod and job.ports.rendezvous > 0
    if told or Variable.MASTER_PORT not in environment:
        port = job.ports.rendezvous or RENDEZVOUS_PORT
    if port is None or not 0 < port < 65536:
        raise AssignmentError(f"MASTER_PORT is {environment.get(Variable.MASTER_PORT, port)!r}, not a port")
    address = rendezvous_address(job=job.job, namespace=job.namespace, nodes=job.nodes)
    return Assignment(
        pod=read_pod(environment),
        job=job,
        # Outside of pods whoever starts the ranks says where they meet.
        master_address=address if told else environment.get(Variable.MASTER_ADDR) or address,
        master_port=port,
        simulate_gpus=environment.get(SIMULATE_GPUS) == "1",
        key=_read_key(path.with_name(KEY_FIELD), job),
        peers=_peers(job, "" if told else environment.get(PEERS, "")),
        shared_memory=Path((not told and environment.get(SHARED_MEMORY)) or _SHARED_MEMORY),
    )


def setting(training: Mapping[str, Any], *path: str) -> Any:
    """Find a value deep in spec.training by its camelCase names, or None where a part of the path is absent."""
    value: Any = training
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _read_job(path: Path) -> JobFile:
    try:
        job = parse_job_file(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise AssignmentError(f"{path}: {error.strerror}: the pod's job.json is not mounted there") from error
    except UnicodeDecodeError as error:
        raise AssignmentError(f"{path}: not UTF-8: {error}") from error
    except WireError as error:
        raise AssignmentError(f"{path}: {error}") from error
    _check(path, job)
    return job


def _peers(job: JobFile, given: str) -> tuple[Address, ...]:
    """Names stay those of a rank's pod, however often it is made anew."""
    if given:
        return tuple((host, int(port)) for host, _, port in (one.rpartition(":") for one in given.split(",")))
    pods = range(job.nodes + job.spares)
    names = (f"{host_name(job.job, rank)}.{service_name(job.job)}.{job.namespace}.svc" for rank in pods)
    return tuple((name, job.ports.status or STATUS_PORT) for name in names)


def _read_key(path: Path, job: JobFile) -> bytes | None:
    if job.nodes == 1:
        return None
    try:
        key = bytes.fromhex(path.read_text().strip())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise AssignmentError(f"{path}: the gang's key cannot be read: {error}") from error
    if not key:
        raise AssignmentError(f"{path}: the gang's key is empty: delete the job's Secret, and the pods")
    return attempt_key(key, job.job_uid, job.attempt)


def _check(path: Path, job: JobFile) -> None:
    whole = {
        "attempt": job.attempt,
        "nodes": job.nodes,
        "gpus_per_node": job.gpus_per_node,
        "spares": job.spares,
        "preflight.timeoutSeconds": job.preflight.timeout_seconds,
        "recovery.hangSeconds": job.recovery.hang_seconds,
        "ports.rendezvous": job.ports.rendezvous,
        "ports.status": job.ports.status,
        "ports.link": job.ports.link,
    }
    wrong = [name for name, value in whole.items() if value < 0]
    if not job.output_directory.startswith("/"):
        wrong.append("output_directory")
    if wrong:
        raise AssignmentError(f"{path}: {', '.join(sorted(wrong))}: not a value that this field can have")
    if job.nodes < 1:
        raise AssignmentError(f"{path}: nodes is {job.nodes}, a job has at least 1")


def _two_whole(text: str) -> tuple[int, int] | None:
    first, _, second = text.partition(" ")
    one, other = _whole(first), _whole(second)
    return None if one is None or other is None else (one, other)


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() else None
