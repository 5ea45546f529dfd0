"""What a checkpoint costs training: ours beside DeepSpeed's save_checkpoint and torch's distributed checkpoints, one state.

    .venv/bin/python bench/checkpoint.py [--parameters 100e6] [--rounds 5] [--output FOLDER] [--gpu]

Two ranks over gloo, or with --gpu one on each GPU, train a model with DeepSpeed ZeRO-1 and save after a step, each way in
turn. Told are: how long the loop stood still for the save, how much longer the save and the next step took together than a
step alone (with fewer cores than work, whatever is done beside training slows it), the time until the checkpoint was
complete, and its bytes. Ours is fsynced, hashed and committed by then; of the others, nothing is. Writes
bench/results/checkpoint.json after each save.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forked_ranks
import gpu_count
import gpu_results
from data_report import RESULTS

from oarlock_trainer.ranks import preload

RANKS = 2
WIDTH = 1024
SAMPLES = 64
"""Rows of a step: enough work that a copy can hide behind it."""

Wait = Callable[[], None]
"""Returns when a save that was begun is complete."""


def main() -> None:
    """Fork the ranks; rank 0 reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parameters", type=float, default=100e6, help="of the model")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--output", type=Path, default=Path(tempfile.gettempdir()), help="file system that is written to"
    )
    parser.add_argument("--gpu", action="store_true", help="on all GPUs of this machine")
    parser.add_argument("--result", type=Path, default=RESULTS / "checkpoint.json")
    options = parser.parse_args()
    gpus = gpu_count.gpus() if options.gpu else 0
    if options.gpu and not gpus:
        sys.exit("bench/checkpoint.py --gpu needs a GPU, and this machine's driver tells of none: nothing was measured")
    os.environ["GPUS_PER_NODE"] = str(gpus)  # before DeepSpeed is imported, which chooses by it
    preload.import_everything(encoders=False)
    with tempfile.TemporaryDirectory(dir=options.output) as folder:
        code = forked_ranks.run(gpus or RANKS, lambda rank: _measure(rank, gpus, Path(folder), options))
    sys.exit(code)


def _measure(rank: int, gpus: int, folder: Path, options: argparse.Namespace) -> None:
    import torch  # noqa: PLC0415 - forked with it
    import torch.distributed as dist  # noqa: PLC0415
    from torch import nn  # noqa: PLC0415

    from oarlock_trainer.engine import process_group  # noqa: PLC0415
    from oarlock_trainer.engine.initialize import initialize  # noqa: PLC0415
    from oarlock_trainer.runtime.job import Job, RankInfo  # noqa: PLC0415

    world = gpus or RANKS
    os.environ |= {"LOCAL_RANK": str(rank), "RANK": str(rank), "WORLD_SIZE": str(world)}  # DeepSpeed insists
    torch.set_num_threads(1)
    rank_info = RankInfo(rank=rank, local_rank=rank, world_size=world, local_world_size=world)
    job = Job(file=_job_file(gpus), training=None, rank_info=rank_info, simulate_gpus=False)
    ranks = process_group.join(job, store=dist.FileStore(str(folder / "store"), world))
    layers = max(int(options.parameters) // WIDTH**2, 1)
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers)))
    engine = initialize(model.to(ranks.device, torch.bfloat16), _training(), rank_info)
    inputs = torch.randn(SAMPLES, WIDTH).to(ranks.device, torch.bfloat16)

    def step(before_update: Wait) -> float:
        """Seconds of a step, until all ranks have done it."""
        dist.barrier()
        began = time.monotonic()
        engine.backward(engine.model(inputs).float().square().mean())
        before_update()
        engine.step(1e-4)
        if gpus:
            torch.cuda.current_stream().synchronize()  # not the stream that copies a snapshot
        ranks.barrier()
        return time.monotonic() - began

    contenders = _contenders(engine, ranks, folder)
    figures: dict[str, list[dict[str, float]]] = {}
    for number in range(options.rounds):
        for name, save in contenders.items():
            if name not in figures:  # what the first save of each makes for all of them
                _save_once(save, step, folder / name / "warm")
            figures.setdefault(name, []).append(_save_once(save, step, folder / name / str(number)))
            if rank == 0:  # after each: the next one may need more shared memory than there is, and be the end
                found = {"parameters": layers * WIDTH**2, "ranks": world, "rounds": figures}
                gpu_results.write(options.result, found)
    if rank == 0:
        _report(figures, parameters=layers * WIDTH**2, ranks=world)
    dist.barrier()
    for saver in multiprocessing.active_children():  # torch's, which has words of its own when its rank is gone
        saver.kill()
        saver.join()


def _save_once(save: Any, step: Callable[[Wait], float], target: Path) -> dict[str, float]:
    """One save: begun after a step, complete when `finish` returns."""
    import torch.distributed as dist  # noqa: PLC0415

    plain = statistics.median(step(lambda: None) for _ in range(3))
    began = time.monotonic()
    before_update, finish = save(target)
    called = stood = time.monotonic() - began

    def waited() -> None:
        nonlocal stood
        at = time.monotonic()
        before_update()
        stood += time.monotonic() - at

    with_save = step(waited)
    finish()
    total = time.monotonic() - began
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    dist.barrier()  # the other ranks may still look at the files
    shutil.rmtree(target, ignore_errors=True)
    return {
        "step, s": plain,
        "stood still, s": stood,
        "longer, s": called + with_save - plain,
        "complete, s": total,
        "MB": size / 1e6,
    }


def _contenders(engine: Any, ranks: Any, folder: Path) -> dict[str, Any]:
    import torch.distributed as dist  # noqa: PLC0415
    from torch.distributed import checkpoint as dcp  # noqa: PLC0415
    from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType  # noqa: PLC0415

    from oarlock_api.contract.layout import Owner  # noqa: PLC0415
    from oarlock_trainer.checkpoint.fence import Fence  # noqa: PLC0415
    from oarlock_trainer.checkpoint.format import DataPosition  # noqa: PLC0415
    from oarlock_trainer.checkpoint.writer import Writer  # noqa: PLC0415
    from oarlock_trainer.data.sampler import Origin  # noqa: PLC0415

    position = DataPosition(fingerprint="", order="", origin=Origin(), reached=Origin(), streams=())
    output = folder / "ours"
    fence = Fence(output, Owner("bench", 1))
    ranks.decide(lambda: fence.take([]))
    writer = Writer(output, fence, ranks, engine, keep=1)
    steps = iter(range(1, 10**6))

    def ours(target: Path) -> tuple[Wait, Wait]:
        writer.begin(next(steps), position)

        def finish() -> None:
            saved: Any = writer.finish()
            if ranks.rank_info.is_leader:
                saved.path.rename(target)
            dist.barrier()

        return writer.before_update, finish

    def deepspeed(target: Path) -> tuple[Wait, Wait]:
        engine._engine.save_checkpoint(str(target), save_latest=False)  # noqa: SLF001
        return _nothing, dist.barrier

    def torchs(kind: Any) -> Callable[[Path], tuple[Wait, Wait]]:
        group = dist.new_group(backend="gloo")

        def save(target: Path) -> tuple[Wait, Wait]:
            state = {f"{part.name}.{part.slot}.{part.start}": part.values for part in engine.parts()}
            begun: Any = dcp.async_save(state, checkpoint_id=target, process_group=group, async_checkpointer_type=kind)

            def finish() -> None:
                getattr(begun, "upload_completion", begun).result()
                dist.barrier()

            return _nothing, finish

        return save

    return {
        "ours": ours,
        "DeepSpeed save_checkpoint": deepspeed,
        "torch DCP async, thread": torchs(AsyncCheckpointerType.THREAD),
        "torch DCP async, process": torchs(AsyncCheckpointerType.PROCESS),
    }


def _nothing() -> None:
    """Nothing to wait for."""


def _training() -> Any:
    from oarlock_api.training import Training  # noqa: PLC0415

    return Training.model_validate(
        {
            "model": {"family": "Flux1", "path": "/"},
            "steps": 1,
            "data": {"datasets": [{"name": "d", "source": {"path": "/"}}]},
        }
    )


def _job_file(gpus: int) -> Any:
    from oarlock_api.contract.job_file import JobFile  # noqa: PLC0415

    return JobFile(
        job="bench", namespace="", job_uid="bench", attempt=1, nodes=1, gpus_per_node=gpus, output_directory=".",
        training={},
    )  # fmt: skip


def _report(figures: dict[str, list[dict[str, float]]], *, parameters: int, ranks: int) -> None:
    print(f"{parameters / 1e6:.0f} million parameters, {ranks} ranks, {len(figures['ours'])} rounds, medians\n")
    medians = {
        name: {figure: statistics.median(one[figure] for one in rounds) for figure in rounds[0]}
        for name, rounds in figures.items()
    }
    base = medians["DeepSpeed save_checkpoint"]
    shown = list(base)
    print(f"{'':28}" + "".join(f"{name:>16}{'of DS':>7}" for name in shown))
    for name, one in medians.items():
        print(f"{name:28}" + "".join(f"{one[figure]:16.3f}{one[figure] / base[figure]:7.3f}" for figure in shown))


if __name__ == "__main__":
    main()
