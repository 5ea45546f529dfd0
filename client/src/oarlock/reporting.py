"""What `oarlock report` and Job.report() give: facts and pictures, gathered and told as one page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from oarlock.errors import NotFoundError
from oarlock.explain.attempts import uid_of
from oarlock.facts import Facts
from oarlock.report import Gallery, find_gallery, report
from oarlock.why import facts_of_job, facts_of_output

if TYPE_CHECKING:
    from oarlock.cluster import Cluster


def report_of_job(
    cluster: Cluster,
    name: str,
    *,
    namespace: str = "",
    path: str | Path | None = None,
    file: str | Path | None = None,
) -> str:
    """The page of a job in a cluster; raises as facts_of_job does. `file`: where the caller will put it."""
    return _page(facts_of_job(cluster, name, namespace=namespace, path=path), path, file)


def report_of_output(path: str | Path, *, file: str | Path | None = None) -> str:
    """The page of a job by its output directory alone. Raises NotFoundError where there is none."""
    return _page(facts_of_output(path), path, file)


def _page(facts: Facts, path: str | Path | None, file: str | Path | None) -> str:
    if not path:
        return report(facts, Gallery())
    try:
        pictures = find_gallery(Path(path), job_uid=uid_of(facts), page=Path(file) if file else None)
    except OSError as error:
        raise NotFoundError(f"the pictures below {path} cannot be read: {error}") from error
    return report(facts, pictures)
