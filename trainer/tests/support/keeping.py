"""Parts of ranks' state in a folder, as ranks keep them in their node's memory: for tests without torch."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from oarlock_trainer.checkpoint.memory.files import RankFiles
from oarlock_trainer.checkpoint.memory.held import state_name

if TYPE_CHECKING:
    from pathlib import Path

KEY = b"k" * 32
CONTENT = bytes(range(256)) * 100
OF: dict[str, Any] = {"job_uid": "uid", "attempt": 1}


def keep(
    folder: Path,
    step: int,
    *,
    rank: int = 0,
    slot: int = 0,
    content: bytes = CONTENT,
    round_: int = 1,
    world: int = 2,
) -> None:
    """As one of `world` ranks keeps its state."""
    folder.mkdir(exist_ok=True)
    name = state_name(rank, slot)
    (folder / name).write_bytes(content)
    file = {"name": name, "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    manifest: dict[str, Any] = {
        **OF,
        "step": step,
        "world_size": world,
        "files": [file],
        "runs": {name: [["weight", 0, 1]]},
    }
    manifest |= {"round": round_} if round_ > 1 else {}
    RankFiles(folder, rank).complete(step, slot, json.dumps(manifest, indent=1), world=world)


def content(folder: Path, step: int, *, rank: int = 0) -> bytes:
    """What the manifest of a part names, and tells the hash of."""
    (path,) = folder.glob(f"step-{step}-of-*-rank-{rank:05}.json")
    manifest = json.loads(path.read_text())
    (file,) = manifest["files"]
    assert list(manifest["runs"]) == [file["name"]]
    found = (folder / file["name"]).read_bytes()
    assert hashlib.sha256(found).hexdigest() == file["sha256"]
    return found
