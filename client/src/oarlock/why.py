"""What `oarlock why`, Job.why() and reports tell: facts from a cluster, from an output that is mounted here, or from both."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from oarlock.errors import NotFoundError
from oarlock.explain import explain
from oarlock.facts import Facts, Output
from oarlock.facts.cluster import from_cluster
from oarlock.facts.folder import NoOutputError, from_folder, read_output
from oarlock.story import Story

if TYPE_CHECKING:
    from oarlock.cluster import Cluster


def story_of_job(cluster: Cluster, name: str, *, namespace: str = "", path: str | Path | None = None) -> Story:
    """The story of a job in a cluster. Raises as facts_of_job does."""
    return explain(facts_of_job(cluster, name, namespace=namespace, path=path))


def story_of_output(path: str | Path) -> Story:
    """The story of a job by its output directory alone. Raises NotFoundError where there is none."""
    return explain(facts_of_output(path))


def facts_of_job(cluster: Cluster, name: str, *, namespace: str = "", path: str | Path | None = None) -> Facts:
    """Facts about a job in a cluster. `path`: its output directory, where that is mounted here: it remembers more.

    Raises NotFoundError where nothing of the job is there, or no output at `path`, and OarlockError as every request does.
    """
    output = _read(Path(path)) if path else None
    namespace = namespace or cluster.namespace
    return from_cluster(cluster.get, namespace=namespace, name=name, now=datetime.now(UTC), output=output)


def facts_of_output(path: str | Path) -> Facts:
    """Facts from a job's output directory alone. Raises NotFoundError where there is none."""
    try:
        return from_folder(Path(path), now=datetime.now(UTC))
    except (NoOutputError, OSError) as error:
        raise NotFoundError(str(error)) from error


def _read(path: Path) -> Output:
    try:
        return read_output(path)[0]
    except (NoOutputError, OSError) as error:
        raise NotFoundError(str(error)) from error
