"""The trackers of a job, as rank 0 has them.

What a job asks for is checked before anything else is done: that the image has the tracker's package, that the Secret has
its keys. Nothing later that is a tracker's fault ends a run.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Self

from oarlock_api.contract.secrets import TRACKER_KEYS, secret_variable
from oarlock_api.publishing import TrackerType
from oarlock_trainer.runtime.errors import ConfigurationError
from oarlock_trainer.tracking.feed import Feed
from oarlock_trainer.tracking.mlflow_run import MlflowRun
from oarlock_trainer.tracking.tensorboard_file import TensorBoardFile
from oarlock_trainer.tracking.tracker import RunFacts
from oarlock_trainer.tracking.wandb_run import WandbRun

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from oarlock_api.publishing import Tracker as Settings
    from oarlock_trainer.runtime.job import Job
    from oarlock_trainer.tracking.tracker import Tracker

_KINDS: dict[TrackerType, Callable[[RunFacts], Tracker]] = {
    TrackerType.TENSORBOARD: TensorBoardFile,
    TrackerType.WANDB: WandbRun,
    TrackerType.MLFLOW: MlflowRun,
}
_PACKAGES = {TrackerType.WANDB: ("wandb", "wandb"), TrackerType.MLFLOW: ("mlflow", "mlflow")}
"""Type -> (module, extra of oarlock-trainer)."""
_PROJECT = "oarlock"
_SERVER = "MLFLOW_TRACKING_URI"
_END_SECONDS, _LEAVE_SECONDS = 30.0, 5.0
"""How long trackers may go on writing after a run's end, and after an end that another attempt follows."""


class Trackers:
    """All trackers of a run, each with a thread of its own. None where this rank is not the one that reports."""

    def __init__(self, runs: Sequence[tuple[Settings, RunFacts]], *, first: int) -> None:
        """Opens them; `first` steps were done before this attempt."""
        self._feeds = [
            Feed(settings.name, partial(_KINDS[settings.type], replace(facts, first=first))) for settings, facts in runs
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for feed in self._feeds:
            feed.end(done=error is None)
        end = time.monotonic() + (_END_SECONDS if error is None else _LEAVE_SECONDS)
        for feed in self._feeds:
            feed.join(end - time.monotonic())

    def report(self, step: int, figures: Mapping[str, float]) -> None:
        """Take the figures of a step, by their names. Never raises and never waits."""
        for feed in self._feeds:
            feed.put(step, figures)


def runs_of(job: Job, environment: Mapping[str, str]) -> list[tuple[Settings, RunFacts]]:
    """The job's trackers and what each is told, `first` still unknown.

    Raises ConfigurationError where this image or the environment lacks what one of them needs.
    """
    servers = {
        (one.url, one.secret_ref.name if one.secret_ref else None)
        for one in job.training.tracking
        if one.type is TrackerType.MLFLOW
    }
    if len(servers) > 1:  # its package takes the keys from the process's environment: one would get another's
        raise ConfigurationError(
            "training.tracking: MLflow trackers with different url or secretRef; give all of a job the same, or leave one"
        )
    return [(one, _facts(job, one, environment)) for one in job.training.tracking]


def _facts(job: Job, settings: Settings, environment: Mapping[str, str]) -> RunFacts:
    field = f"training.tracking[{settings.name}]"
    _check_package(settings, field)
    if settings.type is TrackerType.MLFLOW and not settings.url and not environment.get(_SERVER):
        raise ConfigurationError(
            f"{field}.url: MLflow needs its server's address: set url, or {_SERVER} in spec.pod.env"
        )
    return RunFacts(
        identity=_identity(job, settings),
        project=settings.project or _PROJECT,
        name=settings.run or job.file.job,
        url=settings.url,
        secrets=_secrets(settings, field, environment),
        settings=job.training.to_manifest(),
        output=job.output,
        attempt=job.file.attempt,
        first=0,
    )


def _identity(job: Job, settings: Settings) -> str:
    """The same for every attempt of a job and for nothing else; runs on one machine all have the UID of their name."""
    parts = (job.file.job_uid, str(job.output), settings.name)
    return f"{job.file.job}-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:16]}"


def _check_package(settings: Settings, field: str) -> None:
    module, extra = _PACKAGES.get(settings.type, ("", ""))
    if module and find_spec(module) is None:
        raise ConfigurationError(
            f"{field}.type: {settings.type} needs the package {module}, which this image does not have: use an image with "
            f"`pip install 'oarlock-trainer[{extra}]'`, or remove the entry"
        )


def _secrets(settings: Settings, field: str, environment: Mapping[str, str]) -> dict[str, str]:
    if settings.secret_ref is None:
        return {}
    secret, keys = settings.secret_ref.name, TRACKER_KEYS.get(settings.type, ())
    # What `echo` put into a Secret ends with a line break, and nothing shows it.
    values = {key: environment.get(secret_variable(secret, key), "").strip() for key in keys}
    if not any(values.values()):
        raise ConfigurationError(
            f"{field}.secretRef: the Secret {secret} gives none of {', '.join(keys)}. Add what the tracker needs to the "
            "Secret and start the job again, or remove secretRef"
        )
    return {key: value for key, value in values.items() if value}
