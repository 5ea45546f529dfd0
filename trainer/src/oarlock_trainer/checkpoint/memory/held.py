"""Names in the folder of a node's memory, and which steps it holds: for ranks, and for the agent, which has no torch."""

from __future__ import annotations

import re
import shutil
from collections import defaultdict
from pathlib import Path

FOLDER = "OARLOCK_MEMORY"
"""Environment variable of ranks whose state is kept: the folder."""
RESUME_STEP = "OARLOCK_RESUME_STEP"
"""Environment variable of ranks that are to go on from this step there, not from the newest checkpoint."""
RING = "OARLOCK_MEMORY_RING"
"""Environment variable of ranks, "1": their node keeps what the ranks of the node before it have, too."""
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the pod's own volume
_STATE = re.compile(r"rank-(\d{5,})-([01])\.state")
_MANIFEST = re.compile(r"step-(\d+)-rank-(\d{5,})\.json")


def is_wanted(every_steps: str) -> bool:
    """Whether a job with this recovery.memory.everySteps keeps anything."""
    return every_steps != "0"


def folder_of(job_uid: str, attempt: int, *, shared_memory: Path = SHARED_MEMORY) -> Path:
    """Where the ranks of one attempt keep their state on this node. Nothing of another attempt is ever read."""
    return shared_memory / f"oarlock-{job_uid}-a{attempt}"


def sweep(job_uid: str, attempt: int, *, shared_memory: Path = SHARED_MEMORY) -> None:
    """Remove what earlier attempts of the job left where /dev/shm outlived them, as outside of pods. Never raises OSError."""
    name = re.compile(rf"oarlock-{re.escape(job_uid)}-a(\d+)")
    try:
        found = [(path, name.fullmatch(path.name)) for path in shared_memory.iterdir()]
    except OSError:
        return
    for path, parsed in found:
        if parsed and int(parsed[1]) < attempt:
            shutil.rmtree(path, ignore_errors=True)  # follows no link


def state_name(rank: int, place: int) -> str:
    """One of the two files of a rank: `place` is 0 or 1."""
    return f"rank-{rank:05}-{place}.state"


def parse_state_name(name: str) -> tuple[int, int]:
    """(rank, place). Raises ValueError where it is no such file's name."""
    found = _STATE.fullmatch(name)
    if found is None:
        raise ValueError(f"{name!r} is no file of a rank's state")
    return int(found[1]), int(found[2])


def manifest_name(step: int, rank: int) -> str:
    """What says that a rank's state after `step` steps is whole."""
    return f"step-{step}-rank-{rank:05}.json"


def parse_manifest_name(name: str) -> tuple[int, int] | None:
    """(step, rank), or None where it is no manifest's name."""
    found = _MANIFEST.fullmatch(name)
    return (int(found[1]), int(found[2])) if found else None


def steps_of(folder: Path, rank: int) -> list[int]:
    """The steps whose state a rank has here, newest first."""
    return sorted((step for step, of in _manifests(folder) if of == rank), reverse=True)


def ranks_of(folder: Path) -> set[int]:
    """Those of which anything lies here, whether it counts or not."""
    try:
        states = [found for path in folder.iterdir() if (found := _STATE.fullmatch(path.name))]
    except OSError:
        return set()
    return {int(found[1]) for found in states} | {rank for _, rank in _manifests(folder)}


def held(folder: Path, *, ranks_per_node: int) -> dict[int, tuple[int, ...]]:
    """Step -> the ranks of the nodes all of whose parts of its state are whole here, by their names; newest first.

    Who loads a part compares it with its hash. Whose parts lie here is not asked: they need not be this node's own.
    """
    parts: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
    for step, rank in _manifests(folder):
        parts[step, rank // ranks_per_node].add(rank)
    nodes: defaultdict[int, list[int]] = defaultdict(list)
    for (step, node), ranks in sorted(parts.items(), reverse=True):
        if len(ranks) == ranks_per_node:
            nodes[step].append(node)
    return {step: tuple(sorted(of)) for step, of in nodes.items()}


def _manifests(folder: Path) -> list[tuple[int, int]]:
    """(step, rank) of each that lies there."""
    try:
        names = [path.name for path in folder.iterdir()]
    except OSError:  # what can't be read is not held
        return []
    return [found for name in names if (found := parse_manifest_name(name))]
