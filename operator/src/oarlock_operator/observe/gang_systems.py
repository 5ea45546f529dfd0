"""Discovery: which gang systems the cluster serves, and of which of them the operator may make the groups.

Read when a gang's system is chosen, not once at start: one that is installed later counts for the next job. A job's own
choice is frozen in its status, so nothing here can change a gang that runs, and what was read a while ago does for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from oarlock_api.scheduling import Gang
from oarlock_operator.kube.access import may
from oarlock_operator.kube.api_error import ApiError, NotFound
from oarlock_operator.kube.cluster import Cluster, Json
from oarlock_operator.model.observation import GangSystems
from oarlock_operator.schedulers import SYSTEMS, kai

FRESH_SECONDS, KNOWN_SECONDS = 5.0, 300.0
"""How old an answer may be for a choice (many jobs may start at once), and for what was chosen before."""
FORBIDDEN = 403


@dataclass(slots=True)
class GangReader:
    """Asks the API server. `namespace`: one that the operator works in, empty for all; `clock` in monotonic seconds."""

    cluster: Cluster
    namespace: str = ""
    clock: Callable[[], float] = time.monotonic
    _known: GangSystems | None = None
    _read_at: float = 0.0
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def read(self, *, choosing: bool, used: Gang = Gang.NONE) -> GangSystems:
        """What is served: for a choice now, or a few seconds ago; else it may be some minutes old. Raises ApiError.

        Where the system that a job uses was not served the last time, as by a server that starts, the answer is a new one.
        """
        async with self._reading:
            age = self.clock() - self._read_at
            missed = used is not Gang.NONE and self._known is not None and used not in self._known.apis
            if self._known is None or age >= (FRESH_SECONDS if choosing or missed else KNOWN_SECONDS):
                self._known, self._read_at = await self._read(), self.clock()
            return self._known

    async def _read(self) -> GangSystems:
        groups = (await self.cluster.get("/apis")).get("groups") or []
        versions = {version["groupVersion"] for group in groups for version in group.get("versions") or []}
        found = dict(zip(SYSTEMS, await asyncio.gather(*(self._api(gang, versions) for gang in SYSTEMS)), strict=True))
        served = {gang: api for gang, api in found.items() if api}
        may_make = await asyncio.gather(*(self._may_make(gang, api) for gang, api in served.items()))
        forbidden = frozenset(gang for gang, allowed in zip(served, may_make, strict=True) if not allowed)
        return GangSystems(
            apis={gang: api for gang, api in served.items() if gang not in forbidden},
            forbidden=forbidden,
            topologies=await self._topologies() if Gang.KAI in served and kai.TOPOLOGIES in versions else {},
        )

    async def _api(self, gang: Gang, versions: Collection[str]) -> str:
        """The best version of a system that is served, empty where none is: a group may be, without this resource."""
        for api in SYSTEMS[gang].apis:
            if api in versions and SYSTEMS[gang].resource in await self._resources(api):
                return api
        return ""

    async def _resources(self, api: str) -> set[str]:
        try:
            return {resource["name"] for resource in (await self.cluster.get(f"/apis/{api}")).get("resources") or []}
        except NotFound:
            return set()

    async def _may_make(self, gang: Gang, api: str) -> bool:
        if not SYSTEMS[gang].makes_groups:
            return True
        group, resource = api.partition("/")[0], SYSTEMS[gang].resource
        return await may(self.cluster, "create", resource, group=group, namespace=self.namespace)

    async def _topologies(self) -> dict[str, str]:
        """Level -> Topology; none where they may not be read."""
        try:
            topologies: list[Json] = await self.cluster.list(f"/apis/{kai.TOPOLOGIES}/topologies")
        except ApiError as error:
            if isinstance(error, NotFound) or error.status == FORBIDDEN:
                return {}
            raise
        return {
            level.get("nodeLabel", ""): topology["metadata"]["name"]
            for topology in reversed(topologies)
            for level in (topology.get("spec") or {}).get("levels") or []
        }
