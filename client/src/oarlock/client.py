"""The way in: a Client for one cluster."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from oarlock.checked_name import checked_name
from oarlock.cluster import Cluster, connect, jobs_path
from oarlock.errors import ForbiddenError, RefusedError
from oarlock.job import Job
from oarlock.misspelled import meant
from oarlock.parts import part
from oarlock.rows import JobRow, NodeRow, job_row, node_rows
from oarlock_api.contract.names import API_VERSION, KIND
from oarlock_api.contract.node_marks import GIVEN_BACK

if TYPE_CHECKING:
    from oarlock_api.trainingjob import TrainingJob


OF_THE_SERVER = frozenset(
    {
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "generation",
        "managedFields",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)
"""Fields of metadata that `get -o yaml` shows and nobody may give: a uid would have to be that of a job that is there."""


class Client:
    """A cluster as the caller sees it: by the kubeconfig that kubectl would take, or by this pod's own account."""

    def __init__(
        self,
        *,
        context: str | None = None,
        kubeconfig: str | None = None,
        namespace: str | None = None,
        cluster: Cluster | None = None,
    ) -> None:
        """Raises NoClusterError where there is no kubeconfig, or where it is none; the cluster is asked by the first call."""
        self.cluster = cluster or connect(context=context, kubeconfig=kubeconfig, namespace=namespace)

    @property
    def namespace(self) -> str:
        """The namespace that is meant where none is named."""
        return self.cluster.namespace

    def job(self, name: str, *, namespace: str | None = None) -> Job:
        """A job by its name, whether or not it is there. Raises RefusedError for what can be no name."""
        return Job(self.cluster, name, namespace)

    def ls(self, *, all_namespaces: bool = False, selector: str | None = None) -> list[JobRow]:
        """The jobs of the namespace, or of all, by name. `selector` is one of labels, as kubectl's -l has it.

        Raises NotFoundError where the namespace is not there; of a caller who may not ask for namespaces it has no jobs.
        """
        path = jobs_path(None if all_namespaces else self.namespace)
        rows = [job_row(job) for job in self.cluster.items(path, labelSelector=selector)]
        if not rows and not all_namespaces:
            with suppress(ForbiddenError):
                self.cluster.get(f"/api/v1/namespaces/{checked_name(self.namespace, 'namespace')}")
        return sorted(rows, key=lambda row: (row.namespace, row.name))

    def namespaces(self) -> list[str]:
        """Names of the cluster's namespaces. Raises ForbiddenError where the caller may not list them."""
        return [str(part(one, "metadata").get("name")) for one in self.cluster.items("/api/v1/namespaces")]

    def submit(self, job: TrainingJob | Mapping[str, Any], *, wait: float | bool = False, dry_run: bool = False) -> Job:
        """Apply a job: make it, or change the one of its name. `wait`: until it has succeeded, for so many seconds at most.

        With `dry_run` the API server checks it, and nothing is made. Raises RefusedError with the server's words, and what
        Job.wait raises.
        """
        manifest = dict(job) if isinstance(job, Mapping) else job.to_manifest()
        manifest.pop("status", None)
        if (manifest.get("apiVersion"), manifest.get("kind")) != (API_VERSION, KIND):
            found = f"{manifest.get('apiVersion')} {manifest.get('kind')}"
            raise RefusedError(
                f"this is {found}, and no {API_VERSION} {KIND}: submit jobs here, the rest with kubectl apply"
            )
        given = manifest.get("metadata") or {}
        metadata = {name: value for name, value in given.items() if value and name not in OF_THE_SERVER}
        name = str(metadata.get("name") or "")
        if not name:
            raise RefusedError("the job has no metadata.name: give it one")
        namespace = str(metadata.get("namespace") or self.namespace)
        made = self.job(name, namespace=namespace)
        body = {**manifest, "metadata": {**metadata, "namespace": namespace}}
        try:
            self.cluster.apply(jobs_path(namespace, name), body, dryRun="All" if dry_run else None)
        except RefusedError as error:
            raise RefusedError(". ".join([str(error), *meant(body, str(error))]), error.status) from error
        if wait is not False and not dry_run:
            made.wait(None if wait is True else wait)
        return made

    def nodes(self) -> list[NodeRow]:
        """Nodes with GPUs, or cordoned, and by which job and why; those that need a look first. Lists nodes."""
        return node_rows(self.cluster.items("/api/v1/nodes"))

    def uncordon(self, node: str, *, metadata: Mapping[str, Any] | None = None) -> None:
        """Uncordon a node: pods may go there again, and jobs that avoid it need not any more.

        `metadata` becomes part of the change, as Job's does. Raises RefusedError where that is no node's name.
        """
        given = dict(metadata or {})
        annotations = {**given.get("annotations", {}), GIVEN_BACK: datetime.now(UTC).isoformat(timespec="seconds")}
        patch = {"spec": {"unschedulable": None}, "metadata": {**given, "annotations": annotations}}
        self.cluster.merge(f"/api/v1/nodes/{checked_name(node, 'node')}", patch)
