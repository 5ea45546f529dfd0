"""Names in the folder of a node's memory, and which steps it holds: for ranks, and for the agent, which has no torch."""

from __future__ import annotations

import re
import shutil
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

FOLDER = "OARLOCK_MEMORY"
"""Environment variable of ranks whose state is kept: the folder."""
RESUME_STEP = "OARLOCK_RESUME_STEP"
"""Environment variable of ranks that are to go on from this step there, not from the newest checkpoint."""
RESUME_PLACES = "OARLOCK_RESUME_PLACES"
"""Environment variable beside it: the number of nodes whose ranks kept that step, where they were more or fewer than now."""
RING = "OARLOCK_MEMORY_RING"
"""Environment variable of ranks, "1": their node keeps what the ranks of the node before it have, too."""
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the pod's own volume
_STATE = re.compile(r"rank-(\d{5,})-([012])\.state")
_RANK = re.compile(r"\brank-(\d{5,})")
_MANIFEST = re.compile(r"step-(\d+)-of-(\d+)-rank-(\d{5,})\.json")


class Held(NamedTuple):
    """What a node has of one step: the parts of these places. `size`: how many places the round had that made them."""

    step: int
    size: int
    places: tuple[int, ...]


class ManifestName(NamedTuple):
    """What the name of a manifest says: whose part it is, of `world` ranks."""

    step: int
    world: int
    rank: int


def is_wanted(every_steps: str) -> bool:
    """Whether a job with this recovery.memory.everySteps keeps anything."""
    return every_steps != "0"


def folder_of(job_uid: str, attempt: int, *, shared_memory: Path = SHARED_MEMORY) -> Path:
    """Where the ranks of one attempt keep their state on this node. Nothing of another attempt is ever read."""
    return shared_memory / f"oarlock-{job_uid}-a{attempt}"


def resume_variables(step: int | None, made_by: int) -> dict[str, str]:
    """What ranks are told of the step that they go on from, which so many nodes have made; 0: as many as there are now."""
    if step is None:
        return {}
    return {RESUME_STEP: str(step), **({RESUME_PLACES: str(made_by)} if made_by else {})}


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


def state_name(rank: int, slot: int) -> str:
    """One of the files of a rank: `slot` is 0 or 1, or 2 for what is set aside."""
    return f"rank-{rank:05}-{slot}.state"


def parse_state_name(name: str) -> tuple[int, int]:
    """(rank, slot). Raises ValueError where it is no such file's name."""
    found = _STATE.fullmatch(name)
    if found is None:
        raise ValueError(f"{name!r} is no file of a rank's state")
    return int(found[1]), int(found[2])


def manifest_name(step: int, rank: int, *, world: int) -> str:
    """What says that the state after `step` steps is whole, of one of the `world` ranks that made it."""
    return f"step-{step}-of-{world}-rank-{rank:05}.json"


def parse_manifest_name(name: str) -> ManifestName | None:
    """None where it is no manifest's name."""
    found = _MANIFEST.fullmatch(name)
    return ManifestName(*map(int, found.groups())) if found else None


def steps_of(folder: Path, rank: int) -> list[int]:
    """The steps whose state a rank has here, newest first."""
    return sorted({step for step, _, of in _manifests(folder) if of == rank}, reverse=True)


def by_rank(folder: Path) -> dict[int, list[str]]:
    """Rank -> names of all that lies here of it, whether it counts or not. Listed once, for all ranks."""
    found: defaultdict[int, list[str]] = defaultdict(list)
    for name in _names(folder):
        if rank := _RANK.search(name):
            found[int(rank[1])].append(name)
    return dict(found)


def held(folder: Path, *, ranks_per_node: int) -> tuple[Held, ...]:
    """The steps that lie here, newest first, with the places all of whose parts are whole here, by their names.

    Who loads a part compares it with its hash. Whose parts lie here is not asked: they need not be this node's own.
    """
    parts: defaultdict[tuple[int, int, int], set[int]] = defaultdict(set)
    for step, world, rank in _manifests(folder):
        parts[step, world // ranks_per_node, rank // ranks_per_node].add(rank)
    places: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for (step, size, place), ranks in sorted(parts.items()):
        if len(ranks) == ranks_per_node:
            places[step, size].append(place)
    return tuple(Held(*key, tuple(of)) for key, of in sorted(places.items(), reverse=True))


def _manifests(folder: Path) -> list[ManifestName]:
    """Of each that lies there, what its name says."""
    return [parsed for name in _names(folder) if (parsed := parse_manifest_name(name))]


def _names(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir()]
    except OSError:  # what can't be read is not held
        return []
