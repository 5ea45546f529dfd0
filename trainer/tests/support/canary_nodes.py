"""Nodes that take an output over, for tests of the canary: torch is imported once, then every order forks a gang.

Reads one order a line, {"outputs": [DIR, ...], "trouble": {RANK: KIND}}, and answers with a line: for each rank its code,
null of one that died, and what it said. A node knows its output as `output` below a folder of its own, as mounts would
have it. KIND: one of TROUBLES.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from oarlock_trainer.ranks import preload

preload.settle_environment()
from oarlock_trainer.runtime.uncompiled import import_torch  # noqa: E402

import_torch()
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

from oarlock_api.contract.job_file import JobFile  # noqa: E402
from oarlock_api.contract.layout import Owner  # noqa: E402
from oarlock_api.training import Training  # noqa: E402
from oarlock_trainer.checkpoint import canary  # noqa: E402
from oarlock_trainer.checkpoint.fence import Fence  # noqa: E402
from oarlock_trainer.checkpoint.reader import take_over  # noqa: E402
from oarlock_trainer.engine.process_group import RankGroup, leave  # noqa: E402
from oarlock_trainer.runtime.errors import PeerLostError, TrainingEnd, lost_a_peer  # noqa: E402
from oarlock_trainer.runtime.job import Job, RankInfo  # noqa: E402

TRAINING = Training.model_validate(
    {
        "model": {"family": "Flux1", "path": "/m"}, "steps": 1,
        "data": {"datasets": [{"name": "d", "source": {"path": "/d"}}]},
    }
)  # fmt: skip


def fail(number: int) -> None:
    """Whatever is written fails so."""

    def write(*_: Any) -> str:
        raise OSError(number, os.strerror(number))

    canary.write = canary.write_bytes = write


def tear() -> None:
    """What is written is not what arrives."""
    write = canary.write
    canary.write = lambda content, path: (write(content, path), path.write_bytes(b"torn"))[0]


def misread() -> None:
    """What is read is not what was written."""
    canary.digest = lambda path: "0" if path.exists() else ""


def fail_commit() -> None:
    """A node's own file is written, and what rank 0 writes for all is not."""
    write = canary.write
    fail(errno.EIO)
    canary.write = write


def tear_marker() -> None:
    """What rank 0 writes for all is torn."""
    write = canary.write_bytes
    canary.write_bytes = lambda path, body: write(path, b"\xff" if path.name == canary.MARKER else body)


def die() -> None:
    """This rank is gone once it has written its file."""
    canary._look = lambda *_: os._exit(1)


TROUBLES = {
    "reads otherwise": misread, "writes otherwise": tear, "cannot commit": fail_commit,
    "tears the marker": tear_marker, "dies": die,
    "cannot write": lambda: fail(errno.EROFS), "has no room": lambda: fail(errno.ENOSPC),
}  # fmt: skip


def run_rank(rank: int, order: dict[str, Any], store: str) -> dict[str, Any]:
    """One rank's life, on a node of its own."""
    size = len(order["outputs"])
    os.chdir(tempfile.mkdtemp(dir=Path(store).parent))
    Path(order["outputs"][rank]).mkdir(parents=True, exist_ok=True)
    Path("output").symlink_to(order["outputs"][rank])
    file = JobFile(
        job="flux", namespace="default", job_uid="uid", attempt=2, nodes=size, gpus_per_node=0,
        output_directory="output", training={},
    )  # fmt: skip
    rank_info = RankInfo(rank=rank, local_rank=0, world_size=size, local_world_size=1)
    job = Job(file=file, training=TRAINING, rank_info=rank_info, simulate_gpus=False, node=f"gpu-{rank:02}")
    dist.init_process_group("gloo", store=dist.FileStore(store, size), rank=rank, world_size=size)
    TROUBLES.get(order["trouble"].get(str(rank)), lambda: None)()
    try:
        ranks, fence = RankGroup(rank_info, torch.device("cpu"), None), Fence(job.output, Owner("uid", 2))
        take_over(job, ranks, fence, copies=None, go_on=lambda: None)
    except TrainingEnd as end:
        return {"code": int(end.code), "said": str(end)}
    except RuntimeError as error:
        if not lost_a_peer(error):
            raise
        return {"code": int(PeerLostError.code), "said": str(error)}
    leave()
    return {"code": 0, "said": ""}


def run_gang(order: dict[str, Any], scratch: Path) -> list[dict[str, Any]]:
    """One gang's life."""
    pids = {}
    for rank in range(len(order["outputs"])):
        if (pid := os.fork()) == 0:
            (scratch / f"{rank}.json").write_text(json.dumps(run_rank(rank, order, str(scratch / "store"))))
            os._exit(0)
        pids[rank] = pid
    for pid in pids.values():
        os.waitpid(pid, 0)
    told = [scratch / f"{rank}.json" for rank in pids]
    return [json.loads(path.read_text()) if path.exists() else {"code": None, "said": ""} for path in told]


for line in sys.stdin:
    with tempfile.TemporaryDirectory() as folder:
        sys.stdout.write(json.dumps(run_gang(json.loads(line), Path(folder))) + "\n")
        sys.stdout.flush()
