"""Nobody waits for ever, and nobody decides alone."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_PROGRAM = """
import os, sys
from datetime import timedelta
from oarlock_trainer import warm
warm.settle_environment()
import torch.distributed as dist
from oarlock_trainer.engine.process_group import Ranks
from oarlock_trainer.errors import ConfigurationError, lost_a_peer
from oarlock_trainer.job import Place
import torch

reading, writing = os.pipe()
rank = 0 if os.fork() else 1
store = dist.FileStore(sys.argv[1], 2)
dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
ranks = Ranks(Place(rank=rank, local_rank=rank, world_size=2, local_world_size=2), torch.device("cpu"), None)

assert ranks.gather(rank * 10) == [0, 10]
assert ranks.sum([1.0, rank]) == [2.0, 1.0]
assert ranks.decide(lambda: "rank 0's word") == "rank 0's word"

def refuse():
    if rank == 1:
        raise ConfigurationError("rank 1 cannot")

def forbid():
    raise ConfigurationError("rank 0 forbids")

for attempt in (lambda: ranks.all_or_none(refuse), lambda: ranks.decide(forbid)):
    try:
        attempt()
    except ConfigurationError:
        pass
    else:
        sys.exit("went on alone")

group = dist.new_group([0, 1])
ranks.bound_waiting(0.5)
later = dist.new_group([0, 1])
if rank == 1:
    os.close(writing)
    os.read(reading, 1)  # silent until rank 0 is done, as a frozen node is
    os._exit(0)
for waited in (None, group, later):
    try:
        dist.all_reduce(torch.zeros(1), group=waited)
    except RuntimeError as error:
        assert lost_a_peer(error), error
    else:
        sys.exit("no bound")
print("bounded")
os._exit(0) if not sys.stdout.flush() else None
"""


def test_decisions_are_shared_and_a_silent_peer_is_lost_in_every_group_after_the_bound(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(tmp_path / "store")], capture_output=True, text=True, check=False
    )
    assert done.stdout == "bounded\n", done.stderr
