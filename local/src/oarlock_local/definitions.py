"""Gang systems' kinds by their own sources, for API servers in tests: a field of ours that they do not know is refused.

Each function fetches its source and raises SourceMissing where that cannot be had (sources.py).
"""

from pathlib import Path
from typing import Any

import yaml

from oarlock_local.sources import COSCHEDULING, KUEUE, VOLCANO


def kueue() -> list[dict[str, Any]]:
    """All kinds of Kueue.

    The templates of pods in a Workload are left open: written out they are a megabyte, and take an API server half a minute.
    """
    folder = KUEUE.fetch() / "config/components/crd/bases"
    found = {path.name: _read(path) for path in sorted(folder.glob("*.yaml"))}
    for version in found["kueue.x-k8s.io_workloads.yaml"]["spec"]["versions"]:
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        template = spec["podSets"]["items"]["properties"]["template"]
        template["properties"]["spec"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return list(found.values())


def volcano() -> list[dict[str, Any]]:
    """Volcano's PodGroup and Queue."""
    return _of_volcano("scheduling.volcano.sh_podgroups", "scheduling.volcano.sh_queues")


def volcanos_own() -> list[dict[str, Any]]:
    """What Volcano's scheduler and controllers read besides: nodes as they know them, and commands to queues."""
    return _of_volcano(
        "topology.volcano.sh_hypernodes",
        "nodeinfo.volcano.sh_numatopologies",
        "shard.volcano.sh_nodeshards",
        "bus.volcano.sh_commands",
    )


def coscheduling() -> list[dict[str, Any]]:
    """The PodGroup of the plugin Coscheduling."""
    return [_read(COSCHEDULING.fetch() / "config/crd/bases/scheduling.x-k8s.io_podgroups.yaml")]


def _of_volcano(*names: str) -> list[dict[str, Any]]:
    folder = VOLCANO.fetch() / "config/crd/volcano/bases"
    return [_read(folder / f"{name}.yaml") for name in names]


def _read(path: Path) -> dict[str, Any]:
    definition: dict[str, Any] = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
    return definition
