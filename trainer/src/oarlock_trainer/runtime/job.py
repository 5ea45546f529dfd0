"""What one rank process is told: the job file, and its place among the ranks.

Facts only: what is opened with them, stores and hubs, is made once by loop.setup and passed on.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from oarlock_api.contract.environment import CONFIG_PATH, ROUND, SIMULATE_GPUS, TERM, Variable
from oarlock_api.contract.gang_key import KEY_FIELD, attempt_key
from oarlock_api.contract.job_file import JobFile, parse_job_file
from oarlock_api.contract.layout import Owner
from oarlock_api.contract.open_fields import dropped, joined
from oarlock_api.contract.rounds import serial
from oarlock_api.contract.wire import WireError
from oarlock_api.mistakes import mistakes
from oarlock_api.training import Training
from oarlock_trainer.runtime.assignment import COLLECTIVE_SECONDS, MEMBERS
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class RankInfo:
    """Where this process stands among the ranks, by torch's environment variables.

    `pods` are those of the round by place, where these are not the gang's first ones in order.
    """

    rank: int
    local_rank: int
    world_size: int
    local_world_size: int
    pods: tuple[int, ...] = ()

    @property
    def nodes(self) -> int:
        """Of the round."""
        return self.world_size // max(1, self.local_world_size)

    def pod_of(self, rank: int) -> int:
        """The pod that a rank of the round is in."""
        place = rank // max(1, self.local_world_size)
        return self.pods[place] if self.pods else place

    @property
    def is_leader(self) -> bool:
        """Rank 0 decides what only one may decide: the fence, the resume point, the commit."""
        return self.rank == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One attempt of one job in its `round` (the serial), as this rank sees it.

    `node` is the machine's name where it is known, `rendezvous` where rank 0 listens (host and port). `collective_seconds`
    is the time for the collective check, None = it is not wanted. `cluster` tells the job's cluster from
    others; empty where the operator does not know it. `key` is the attempt's, None where the gang has none.
    """

    file: JobFile
    training: Training
    rank_info: RankInfo
    simulate_gpus: bool
    round: int = 1
    node: str = ""
    cluster: str = ""
    key: bytes | None = field(default=None, repr=False)
    rendezvous: tuple[str, int] = ("", 0)
    collective_seconds: float | None = None

    @property
    def output(self) -> Path:
        """Directory that everything of the job lies below."""
        return Path(self.file.output_directory)

    @property
    def owner(self) -> Owner:
        """Whom the output's fence is to name while these ranks run."""
        return Owner(self.file.job_uid, self.file.attempt, self.round)


def read_job(environment: Mapping[str, str]) -> Job:
    """Read the job file and this process's place.

    Raises ConfigurationError where either is missing or says what this image does not know.
    """
    path = Path(environment.get(Variable.CONFIG, CONFIG_PATH))
    try:
        file = parse_job_file(path.read_text(encoding="utf-8"))
    except (OSError, WireError) as error:
        raise ConfigurationError(f"cannot read the job file {path}: {error}") from error
    return Job(
        file=file,
        training=parse_training(file),
        rank_info=read_rank_info(environment),
        simulate_gpus=environment.get(SIMULATE_GPUS) == "1",
        round=serial(int(environment.get(TERM) or 1), int(environment.get(ROUND) or 1)),
        node=environment.get(Variable.NODE, ""),
        cluster=environment.get(Variable.CLUSTER, ""),
        key=_read_key(path.with_name(KEY_FIELD), file),
        rendezvous=(environment.get(Variable.MASTER_ADDR, ""), int(environment.get(Variable.MASTER_PORT) or 0)),
        collective_seconds=float(seconds) if (seconds := environment.get(COLLECTIVE_SECONDS)) else None,
    )


def _read_key(path: Path, file: JobFile) -> bytes | None:
    """The agent has read the same before, and has ended the pod where it is unreadable."""
    if file.nodes == 1 or not path.exists():
        return None
    return attempt_key(bytes.fromhex(path.read_text(encoding="utf-8").strip()), file.job_uid, file.attempt)


def parse_training(file: JobFile) -> Training:
    """Validate spec.training with the models of the API. Of what the job leaves open, fields of a later release are dropped.

    Raises ConfigurationError that names each field that is unknown or wrong.
    """
    defaults = copy.deepcopy(file.training_defaults)
    try:
        return Training.model_validate(joined(file.training, defaults))
    except ValidationError as error:
        for problem in error.errors():
            if problem["type"] == "extra_forbidden":
                dropped(defaults, file.training, problem["loc"])
    try:
        return Training.model_validate(joined(file.training, defaults))
    except ValidationError as error:
        wrong = "; ".join(mistakes(error, Training, below="training"))
        raise ConfigurationError(
            f"the job's training is not what this image understands: {wrong}. "
            "Use the trainer image of the operator's release, or correct the job."
        ) from error


def read_rank_info(environment: Mapping[str, str]) -> RankInfo:
    """This rank's place, from RANK, LOCAL_RANK, WORLD_SIZE and LOCAL_WORLD_SIZE, and the agent's list of the round's pods."""
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    if missing := [name for name in names if not environment.get(name, "").isdecimal()]:
        raise ConfigurationError(f"{', '.join(missing)} must be set to numbers: start ranks through the agent")
    rank, local_rank, world_size, local_world_size = (int(environment[name]) for name in names)
    pods = tuple(int(pod) for pod in environment.get(MEMBERS, "").split(",") if pod)
    return RankInfo(
        rank=rank, local_rank=local_rank, world_size=world_size, local_world_size=local_world_size, pods=pods
    )
