"""Find out whether NCCL can use the InfiniBand that this pod was given. What it then takes, the collective check tells."""

from __future__ import annotations

from oarlock_api.contract.status import CheckResult
from oarlock_trainer.health.fabric import Fabric, read_fabric
from oarlock_trainer.preflight.finding import Check, Finding


def find(*, node: str = "") -> Finding:
    """The check as preflight orders it."""
    return judge(read_fabric(), where=f" on node {node}" if node else "")


def judge(fabric: Fabric, *, where: str) -> Finding:
    """What stands in the way is a warning: NCCL may have a way of its own, and a slow network trains. Pure."""
    if why := fabric.hindrance():
        return Finding(check=Check.NETWORK, result=CheckResult.WARNING, detail=f"network{where}: {why}")
    if not fabric.devices:
        said = "no InfiniBand is in this pod: between nodes NCCL takes TCP, unless a plugin brings a network of its own"
    else:
        said = f"InfiniBand is in the pod ({', '.join(fabric.devices)}), and memory can be locked for it"
    return Finding(check=Check.NETWORK, result=CheckResult.PASSED, detail=f"network{where}: {said}")
