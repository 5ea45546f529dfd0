"""What the state in memory costs training: steps with recovery.memory on Auto beside steps without, in turn.

    .venv/bin/python bench/memory_snapshot.py [--parameters 20e6] [--samples 1024] [--steps 40] [--rounds 3]
        [--every 4] [--ring | --gpu] [--width 1024]

Two ranks over gloo, or one on a GPU, train a model with DeepSpeed ZeRO-1, so many steps without anything in memory, then
as many with it, and again. Told are: the mean step of both, how many snapshots there were, for how long training stood still
for one, how much longer the steps beside one took in all, the time until it was whole, and how far apart Auto puts two. With
--every they come more often than Auto lets them, so that there are some to measure. Writes
bench/results/memory_snapshot.json. Without spare cores copying and hashing slow the steps beside them; where there are some,
they need not.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import forked_ranks
import ring_agents
from data_report import RESULTS

from oarlock_trainer.ranks import preload

if TYPE_CHECKING:
    from oarlock_trainer.engine.process_group import RankGroup

RANKS = 2


def main() -> None:
    """Fork the ranks; rank 0 reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parameters", type=float, default=20e6, help="of the model")
    parser.add_argument("--width", type=int, default=1024, help="of each of its layers")
    parser.add_argument("--samples", type=int, default=1024, help="rows of a step: how long it takes")
    parser.add_argument("--steps", type=int, default=40, help="of each kind in a round")
    parser.add_argument("--rounds", type=int, default=3)
    nodes = parser.add_mutually_exclusive_group()
    nodes.add_argument(
        "--ring", action="store_true", help="each rank is a node, whose agent copies the other one's state"
    )
    nodes.add_argument("--gpu", action="store_true", help="one rank, on this machine's first GPU")
    parser.add_argument("--every", type=int, help="steps from one snapshot to the next; default: Auto")
    options = parser.parse_args()
    preload.import_everything(encoders=False)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        agents = ring_agents.start(RANKS, Path(folder)) if options.ring else []
        code = forked_ranks.run(_count(options), lambda rank: _measure(rank, Path(folder), options))
        for agent in agents:
            agent.terminate()
    sys.exit(code)


def _count(options: argparse.Namespace) -> int:
    return 1 if options.gpu else RANKS


def _measure(rank: int, folder: Path, options: argparse.Namespace) -> None:
    import torch  # noqa: PLC0415 - forked with it
    import torch.distributed as dist  # noqa: PLC0415
    from torch import nn  # noqa: PLC0415

    from oarlock_trainer.checkpoint.format import DataPosition  # noqa: PLC0415
    from oarlock_trainer.checkpoint.memory.memory import Memory  # noqa: PLC0415
    from oarlock_trainer.data.sampler import Origin  # noqa: PLC0415
    from oarlock_trainer.engine.initialize import initialize  # noqa: PLC0415

    ranks, width = _ranks(rank, folder, options), options.width
    rank_info, device = ranks.rank_info, ranks.device
    own = ring_agents.folder(folder, rank) if options.ring else folder / "memory"
    layers = max(int(options.parameters) // width**2, 1)
    model = nn.Sequential(*(nn.Linear(width, width, bias=False, device=device) for _ in range(layers))).to(
        torch.bfloat16
    )
    engine = initialize(model, _training(), rank_info)
    inputs = torch.randn(options.samples, width, device=device, dtype=torch.bfloat16)
    position = DataPosition(fingerprint="", order="", origin=Origin(), reached=Origin(), streams=())
    memory = Memory(own, _Job(), ranks, engine, every=options.every, ring=options.ring)  # type: ignore[arg-type]
    ended: list[tuple[float, float]] = []
    rhythm: Any = memory._rhythm  # noqa: SLF001 - what it learns is what is told
    learn = rhythm.ended

    def note(*, stall: float, seconds: float) -> None:
        learn(stall=stall, seconds=seconds)
        ended.append((stall, seconds))

    rhythm.ended = note

    def step(number: int, *, remembers: bool) -> float:
        """Seconds of a step, until all ranks have done it."""
        began = time.monotonic()
        engine.backward(engine.model(inputs).float().square().mean())
        memory.before_update()
        told = ranks.sum(memory.told(number) if remembers else (0.0, 0.0))
        engine.step(1e-4)
        if options.gpu:
            torch.cuda.synchronize()
        seconds = time.monotonic() - began
        if remembers:
            memory.go_on(told, number, seconds=seconds, position=lambda _: position)
        return time.monotonic() - began

    for number in range(3):
        step(number, remembers=False)
    seconds: dict[str, list[float]] = {"without": [], "with": []}
    number = 0
    for _ in range(options.rounds):
        for kind, steps in seconds.items():
            for _ in range(options.steps):
                number += 1
                steps.append(step(number, remembers=kind == "with"))
    if rank == 0:
        size = memory._size  # noqa: SLF001
        what = f"{layers * width**2 / 1e6:.0f} million parameters, {rank_info.world_size} ranks, {size / 1e6:.0f} MB of state"
        _report(what, seconds, ended, list(rhythm._costs), size)  # noqa: SLF001
    dist.barrier()
    memory.close()


def _ranks(rank: int, folder: Path, options: argparse.Namespace) -> RankGroup:
    """This process among the ranks, as training has it: NCCL, and gloo for agreement, where it has a GPU."""
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415

    from oarlock_trainer.engine.process_group import RankGroup  # noqa: PLC0415
    from oarlock_trainer.runtime.job import RankInfo  # noqa: PLC0415

    count = _count(options)
    os.environ |= {"LOCAL_RANK": str(rank), "RANK": str(rank), "WORLD_SIZE": str(count)}  # DeepSpeed insists
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), count)
    dist.init_process_group("nccl" if options.gpu else "gloo", store=store, rank=rank, world_size=count)
    of_node = 1 if options.ring else count
    rank_info = RankInfo(rank=rank, local_rank=rank % of_node, world_size=count, local_world_size=of_node)
    control = dist.new_group(backend="gloo") if options.gpu else None
    return RankGroup(rank_info, torch.device("cuda:0" if options.gpu else "cpu"), control)


class _Job:
    """What memory asks of a job."""

    node = "bench"
    job_uid = ring_agents.JOB_UID
    attempt = ring_agents.ATTEMPT
    round = 1

    @property
    def file(self) -> _Job:
        return self


def _training() -> Any:
    from oarlock_api.training import Training  # noqa: PLC0415

    return Training.model_validate(
        {
            "model": {"family": "Flux1", "path": "/"},
            "steps": 1,
            "data": {"datasets": [{"name": "d", "source": {"path": "/"}}]},
        }
    )


def _report(
    what: str, seconds: dict[str, list[float]], ended: list[tuple[float, float]], costs: list[float], size: int
) -> None:
    from oarlock_trainer.checkpoint.memory.rhythm import every_steps  # noqa: PLC0415

    usual = statistics.median(seconds["without"])
    print(f"{what} each")
    for kind, steps in seconds.items():
        print(
            f"{kind:8} {len(steps)} steps, mean {statistics.fmean(steps):.4f} s, median {statistics.median(steps):.4f} s"
        )
    body: dict[str, Any] = {"what": what, "stateBytes": size, "steps": seconds, "snapshots": ended}
    if ended:
        stall, whole = (statistics.median(one) for one in zip(*ended, strict=True))
        cost = statistics.fmean(costs)
        every = every_steps(cost=cost, seconds=whole, step_seconds=usual)
        print(
            f"{len(ended)} snapshots: stood still {stall * 1e3:.1f} ms, steps beside one longer by {cost:.3f} s in all, "
            f"whole after {whole:.2f} s; Auto: every {every} steps, {100 * cost / (every * usual):.2f} % of the time"
        )
        body |= {"costs": costs, "every": every}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "memory_snapshot.json").write_text(json.dumps(body, indent=1) + "\n")


if __name__ == "__main__":
    main()
