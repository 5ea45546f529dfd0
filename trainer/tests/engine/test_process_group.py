"""Nobody waits for ever, and nobody decides alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.distributed as dist

from oarlock_trainer.engine import numa, process_group
from oarlock_trainer.runtime.job import RankInfo

if TYPE_CHECKING:
    from pathlib import Path

    from forked import Forks

_PROGRAM = """
import os, sys
from datetime import timedelta
from oarlock_trainer.ranks import preload
preload.settle_environment()
import torch.distributed as dist
from oarlock_trainer.engine.process_group import RankGroup
from oarlock_trainer.runtime.errors import ConfigurationError, lost_a_peer
from oarlock_trainer.runtime.job import RankInfo
import torch

reading, writing = os.pipe()
rank = 0 if os.fork() else 1
store = dist.FileStore(sys.argv[1], 2)
dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
ranks = RankGroup(RankInfo(rank=rank, local_rank=rank, world_size=2, local_world_size=2), torch.device("cpu"), None)

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


def test_decisions_are_shared_and_a_silent_peer_is_lost_in_every_group_after_the_bound(
    forks: Forks, tmp_path: Path
) -> None:
    done = forks(_PROGRAM, tmp_path / "store")
    assert done.stdout == "bounded\n", done.stderr


_SHARES = """
import os, sys
from oarlock_trainer.ranks import preload
preload.settle_environment()
import torch.distributed as dist
from oarlock_trainer.engine.process_group import RankGroup
from oarlock_trainer.runtime.errors import LeftOnRequest, StorageError, TrainingEnd, lost_a_peer
from oarlock_trainer.runtime.job import RankInfo
import torch

def nothing(): pass

def fail():
    raise StorageError("the disk is full")

def leave():
    raise LeftOnRequest("asked to leave")

def run(rank, work, go_on):
    rank_info = RankInfo(rank=rank, local_rank=rank, world_size=2, local_world_size=2)
    store = dist.FileStore(sys.argv[1], 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    ranks = RankGroup(rank_info, torch.device("cpu"), None)
    ranks.bound_waiting(20.0)
    assert ranks.shares(lambda: rank, nothing) == [0, 1]
    try:
        ranks.shares(work, go_on)
    except TrainingEnd as end:
        return end.code
    except RuntimeError as error:
        return 82 if lost_a_peer(error) else 1
    return 0

share, go_on = {"fails": (fail, nothing), "is asked to leave while it waits": (nothing, leave)}[sys.argv[2]]
reading, writing = os.pipe()
first = os.fork()
if first == 0:
    os._exit(run(0, share, go_on))
os.close(writing)
code = run(1, lambda: os.read(reading, 1), nothing)  # its share takes until the other process is gone
print(os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]), code, flush=True)
os._exit(0)
"""


@pytest.mark.parametrize(("what", "code"), [("fails", 84), ("is asked to leave while it waits", 86)])
def test_a_rank_that_ends_in_a_long_share_waits_for_nobody_and_the_others_lose_it(
    forks: Forks, tmp_path: Path, what: str, code: int
) -> None:
    done = forks(_SHARES, tmp_path / "store", what)
    assert done.stdout == f"{code} 82\n", done.stderr


_INTRUDED = """
import os, sys
from oarlock_trainer.ranks import preload
preload.settle_environment()
import torch.distributed as dist
from oarlock_trainer.engine.process_group import RankGroup
from oarlock_trainer.runtime.errors import PeerLostError
from oarlock_trainer.runtime.job import RankInfo
import torch

class Spy:
    def __reduce__(self):
        return (open, (sys.argv[2], "w"))

rank = 0 if os.fork() else 1
dist.init_process_group("gloo", store=dist.FileStore(sys.argv[1], 2), rank=rank, world_size=2)
rank_info = RankInfo(rank=rank, local_rank=0, world_size=2, local_world_size=1)
of_the_gang = RankGroup(rank_info, torch.device("cpu"), None, key=b"k" * 32)
assert of_the_gang.gather(("rank", rank)) == [("rank", 0), ("rank", 1)]
assert of_the_gang.decide(lambda: {"word": "rank 0's"}) == {"word": "rank 0's"}

keys = (b"k" * 32, None if sys.argv[3] == "none" else b"o" * 32)
if sys.argv[3] == "earlier":
    keys = (b"k" * 32, b"k" * 32)
mixed = RankGroup(rank_info, torch.device("cpu"), None, key=keys[rank])
if sys.argv[3] == "earlier" and rank == 1:
    mixed._exchange._turn = 7  # what it says was sealed for another exchange
try:
    mixed.gather(Spy() if rank == 1 else "rank 0")
except PeerLostError as error:
    print(f"rank {rank}: {error}", flush=True)
os._exit(0) if rank == 1 else os.wait()
os._exit(0)
"""


@pytest.mark.parametrize("key", ["none", "another", "earlier"])
def test_nothing_is_unpickled_that_the_gangs_key_has_not_sealed_for_this_exchange(
    forks: Forks, tmp_path: Path, key: str
) -> None:
    opened = tmp_path / "opened"
    done = forks(_INTRUDED, tmp_path / "store", opened, key)
    assert "rank 0: what rank 1 sent is not sealed with the gang's key" in done.stdout, done.stderr
    if key != "none":
        assert not opened.exists()


@pytest.mark.parametrize(("world_size", "bound"), [(1, None), (2, torch.device("cuda", 0))])
def test_a_gpu_that_is_alone_is_not_bound_to_its_group_which_could_not_be_split(
    monkeypatch: pytest.MonkeyPatch, world_size: int, bound: torch.device | None
) -> None:
    """DeepSpeed would end with CUDA's error 600 when it makes groups of its own (its issue 8248)."""
    asked: dict[str, Any] = {}
    monkeypatch.setattr(process_group, "choose_device", lambda _job: torch.device("cuda", 0))
    monkeypatch.setattr(torch.cuda, "set_device", lambda _device: None)
    monkeypatch.setattr(numa, "pin", lambda *_: set())
    monkeypatch.setattr(process_group, "_bound_new_groups", lambda _timeout: None)
    monkeypatch.setattr(dist, "init_process_group", lambda backend, **how: asked.update(how, backend=backend))
    monkeypatch.setattr(dist, "new_group", lambda **_: None)
    rank_info = RankInfo(rank=0, local_rank=0, world_size=world_size, local_world_size=world_size)
    process_group.join(SimpleNamespace(rank_info=rank_info, key=None))  # type: ignore[arg-type]
    assert (asked["backend"], asked["device_id"], asked["world_size"]) == ("nccl", bound, world_size)
