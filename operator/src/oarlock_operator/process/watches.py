"""What the operator itself watches: the pods of jobs, read into few fields, and of the jobs no more than their metadata.

A gang of a thousand pods has thousands of events (docs/decisions/0005), and a job's spec may be anything that a tenant
wrote: a watch that reads neither is cheap, and nothing that stands in one job can stop it (docs/decisions/0020).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from oarlock_api.contract.names import Label
from oarlock_operator.kube.cluster import Cluster
from oarlock_operator.kube.collection_watch import CollectionWatch
from oarlock_operator.kube.job_paths import job_collections
from oarlock_operator.model.observation import Key
from oarlock_operator.pods.pod_facts import RawPod


class _Metadata(Struct, frozen=True, rename="camel"):
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None


class SeenJob(Struct, frozen=True):
    """Of a job, which it is."""

    metadata: _Metadata

    @property
    def key(self) -> Key:
        """The job's place on the work queue."""
        return self.metadata.namespace, self.metadata.name


def pod_watch(
    cluster: Cluster, namespaces: Sequence[str], sink: Callable[[str, RawPod], None]
) -> CollectionWatch[RawPod]:
    """The watch of the pods of jobs, in the namespaces named or everywhere."""
    paths = [f"/api/v1/namespaces/{name}/pods" for name in namespaces] or ["/api/v1/pods"]
    return CollectionWatch(cluster=cluster, paths=paths, kind=RawPod, sink=sink, selector=Label.JOB.value)


def job_watch(
    cluster: Cluster, namespaces: Sequence[str], sink: Callable[[str, SeenJob], None]
) -> CollectionWatch[SeenJob]:
    """The watch of TrainingJobs, in the namespaces named or everywhere."""
    return CollectionWatch(
        cluster=cluster, paths=job_collections(namespaces), kind=SeenJob, sink=sink, metadata_only=True
    )
