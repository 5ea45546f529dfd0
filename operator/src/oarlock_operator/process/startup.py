"""Before work begins: the CRD must be there, and what the operator may do with nodes must be known."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from oarlock_operator.kube.access import may
from oarlock_operator.kube.api_error import ApiError
from oarlock_operator.kube.cluster import Cluster
from oarlock_operator.kube.job_paths import job_collections
from oarlock_operator.kube.outages import FIRST_DELAY, longer
from oarlock_operator.process.keys import Keys, gang_keys
from oarlock_operator.process.settings import Settings

log = structlog.get_logger(__name__)

ANEW_SECONDS = 2.0
OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True, slots=True)
class NodeRights:
    """What this process may do with nodes. Without `watch`, their loss is read from the pods, later."""

    watch: bool
    cordon: bool


async def node_rights(cluster: Cluster, namespaces: Sequence[str]) -> NodeRights:
    """Ask the API server. In namespaced mode nodes are not touched at all. Raises ApiError."""
    if namespaces:
        return NodeRights(watch=False, cordon=False)
    rights = NodeRights(watch=await may(cluster, "watch", "nodes"), cordon=await may(cluster, "patch", "nodes"))
    log.info("rights on nodes", watch=rights.watch, cordon=rights.cordon)
    return rights


async def cluster_id(cluster: Cluster, *, given: str, namespace: str) -> str:
    """What tells this cluster from all others: what is `given`, else the uid of `namespace`; empty where it may not be read.

    Raises ApiError where it cannot be read now.
    """
    if given:
        return given
    try:
        found = await cluster.get(f"/api/v1/namespaces/{namespace}")
    except ApiError as error:
        if error.status not in (403, 404):
            raise
        log.warning("this cluster has no name", error=str(error), hint="set cluster_id, or allow to get that namespace")
        return ""
    return str(found["metadata"]["uid"])


async def check_crd(cluster: Cluster, namespaces: Sequence[str]) -> None:
    """The CRD must be there: without it, watches would idle for ever and look healthy. Raises ApiError."""
    await cluster.get(job_collections(namespaces)[0], limit="1")


@dataclass(frozen=True, slots=True)
class Known:
    """What is read before any work, at the start of each term."""

    rights: NodeRights
    cluster_id: str
    keys: Keys = field(default=(), repr=False)


@dataclass(slots=True)
class StartUp:
    """Reads what must be known, for as long as it takes: a cluster that comes up, or is restored, is waited for."""

    cluster: Cluster
    settings: Settings
    obstacle: str = "the API server has not answered yet"
    """What is waited for; empty once all is read."""

    async def read(self) -> Known:
        """Read it, once the CRD is served. Never gives up on the API server. Raises UnusableKeyError."""
        delay = FIRST_DELAY
        while True:
            try:
                known = await self._read()
            except ApiError as error:
                self.obstacle = f"{error}; are crds/trainingjobs.yaml and the operator's rights there?"
                log.warning(
                    "waiting to start", error=str(error), hint="apply crds/trainingjobs.yaml, check --kubeconfig"
                )
                await asyncio.sleep(delay)
                delay = longer(delay)
            else:
                self.obstacle = ""
                return known

    async def anew(self, before: Known) -> Known:
        """What is known now; where that is not told at once, for the Lease waits, what was before. Raises UnusableKeyError.

        A process may have waited for its term for weeks, and its rights may be others since.
        """
        try:
            async with asyncio.timeout(ANEW_SECONDS):
                return await self._read()
        except (ApiError, TimeoutError) as error:
            log.warning("the operator's rights could not be read anew, those of before count", error=str(error))
            return before

    async def _read(self) -> Known:
        ours = self.settings
        await check_crd(self.cluster, ours.namespaces)
        rights = await node_rights(self.cluster, ours.namespaces)
        own = ours.lease_namespace or own_namespace()
        where = own if ours.namespaces else "kube-system"
        known_as = await cluster_id(self.cluster, given=ours.cluster_id, namespace=where)
        return Known(rights, known_as, await self._keys(own))

    async def _keys(self, own: str) -> Keys:
        ours = self.settings
        if not await may(self.cluster, "create", "secrets", namespace=next(iter(ours.namespaces), "")):
            log.warning("gangs have no keys", reason="this operator may not create Secrets")
            return ()
        return await gang_keys(self.cluster, file=ours.key_file, namespace=own, name=f"{ours.lease_name}-key")


def own_namespace() -> str:
    """The namespace of the operator's own pod; outside a cluster `default`."""
    return OWN_NAMESPACE.read_text().strip() if OWN_NAMESPACE.exists() else "default"
