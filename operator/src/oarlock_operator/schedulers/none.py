"""No gang system: pods are placed one by one, and taken back as a whole where not all of them find a node in time.

Near each other by pod affinity. It knows no gang: the first pod chooses the place, and the others may not fit there.
"""

from __future__ import annotations

from oarlock_operator.manifests.grouping import Grouping
from oarlock_operator.schedulers.system import GangRequest, System


def grouping(request: GangRequest) -> Grouping:
    """Nothing but the topology."""
    return Grouping(near=request.spec.scheduling.topology)


SYSTEM = System(grouping=grouping, makes_groups=False, replaces_pods=True, surges=True)
