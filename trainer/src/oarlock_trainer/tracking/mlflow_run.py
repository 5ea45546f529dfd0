"""MLflow: one run a job, found again by its tag in every attempt. Needs the package mlflow-skinny (or mlflow)."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from oarlock_trainer.tracking.tracker import RunFacts

_TAG = "oarlock.run"
_LONGEST = 500
"""Characters of a parameter, which every server takes."""
_AT_ONCE = 100
"""Parameters of one request."""


class MlflowRun:
    """An open run."""

    def __init__(self, facts: RunFacts) -> None:
        """Finds the run or makes it, and its experiment. Raises what mlflow raises, after its own retries."""
        os.environ.update(facts.secrets)  # mlflow takes them from nowhere else
        from mlflow import MlflowClient  # noqa: PLC0415 - takes a second, and not every image has it
        from mlflow.entities import Metric, Param  # noqa: PLC0415

        self._metric = Metric
        self._client = MlflowClient(tracking_uri=facts.url)
        experiment = self._experiment(facts.project)
        found = self._client.search_runs([experiment], f"tags.`{_TAG}` = '{facts.identity}'", max_results=1)
        if found:
            self._id = found[0].info.run_id
            self._client.update_run(self._id, status="RUNNING")
            return
        self._id = self._client.create_run(experiment, run_name=facts.name, tags={_TAG: facts.identity}).info.run_id
        settings = [Param(key, value[:_LONGEST]) for key, value in _flat(facts.settings, "")]
        for first in range(0, len(settings), _AT_ONCE):
            self._client.log_batch(self._id, params=settings[first : first + _AT_ONCE])

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Send a step."""
        now = int(time.time() * 1000)
        self._client.log_batch(self._id, [self._metric(name, value, now, step) for name, value in figures.items()])

    def close(self, *, done: bool) -> None:
        """Mark the run as finished, if it is; else it stays as it is for the next attempt."""
        if done:
            self._client.set_terminated(self._id, "FINISHED")

    def _experiment(self, name: str) -> str:
        found = self._client.get_experiment_by_name(name)
        return str(found.experiment_id) if found else str(self._client.create_experiment(name))


def _flat(value: Any, above: str) -> Iterator[tuple[str, str]]:
    """Settings by their paths, such as optimizer.learningRate; lists as JSON."""
    if isinstance(value, dict):
        for key, below in value.items():
            yield from _flat(below, f"{above}.{key}" if above else key)
    else:
        yield above, value if isinstance(value, str) else json.dumps(value)
