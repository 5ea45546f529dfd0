"""What it costs that accelerate's Accelerator prepares the engine, instead of the trainer calling DeepSpeed and DDP itself.

    .venv/bin/python bench/prepared.py [--starts 5] [--rounds 15] [--blocks 2,4] [--width 512]

start: a process that imports as a node does, then forks two ranks over gloo that make an engine, each way in turn: processor
time of the imports, and of making the engine on rank 0. ddp: bytes that two ranks exchange when a frozen model with a few
trained weights is wrapped. step: both ways' engines in one pair of processes, turn by turn, an optimizer step with the same
model, batch and configuration; the way of accelerate is its documented loop (`accumulate`, `backward`). See decision 0032.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oarlock_api.training import Training
from oarlock_trainer.ranks import preload

RANKS, RATE = 2, 1e-4
WAYS = ("ours", "accelerate")
Step = Callable[[], float]


def main() -> None:
    """Measure all three, or be one start (`--way`)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--blocks", default="2,4", help="double and single blocks")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        began = time.process_time()
        preload.import_everything(encoders=False)
        if options.way == "accelerate":
            _import_accelerate()
        imports = time.process_time() - began
        print(json.dumps({"imports": imports, "engine": in_ranks(_time_engine, options)}))
        return
    starts: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(options.starts):
        for way in WAYS:
            command = [
                sys.executable,
                __file__,
                "--way",
                way,
                "--blocks",
                options.blocks,
                "--width",
                str(options.width),
            ]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            starts[way].append(json.loads(done.stdout.splitlines()[-1]))
    for way, found in starts.items():
        for part in ("imports", "engine"):
            print(f"start, {way:12}{part:8} {_spread([one[part] for one in found])} CPU s")
    preload.import_everything(encoders=False)
    _import_accelerate()
    print("ddp, MB sent to make the engine of a frozen model of 134 MB:", in_ranks(_ddp_bytes, options))
    seconds = in_ranks(_time_steps, options)
    for way, found in seconds.items():
        print(f"step, {way:12} {_spread(found)} s")
    print(
        "step, accelerate / ours", _spread([a / b for a, b in zip(seconds["accelerate"], seconds["ours"], strict=True)])
    )


def _import_accelerate() -> None:
    import accelerate  # noqa: F401, PLC0415
    from transformers.integrations import HfDeepSpeedConfig  # noqa: F401, PLC0415 - DeepSpeedPlugin.select does so


def in_ranks(work: Callable[[argparse.Namespace], Any], options: argparse.Namespace) -> Any:
    """Do it on all ranks; what rank 0 returned."""
    with tempfile.TemporaryDirectory() as folder:
        pids = []
        for rank in range(RANKS):
            pid = os.fork()
            if pid == 0:
                os._exit(_rank(rank, Path(folder), work, options))
            pids.append(pid)
        codes = [os.waitpid(pid, 0)[1] for pid in pids]
        if any(codes):
            sys.exit("a rank failed")
        return json.loads((Path(folder) / "found").read_text())


def _rank(rank: int, folder: Path, work: Callable[[argparse.Namespace], Any], options: argparse.Namespace) -> int:
    import torch.distributed as dist  # noqa: PLC0415

    try:
        os.environ |= {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": str(RANKS),
            "LOCAL_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0",
        }  # fmt: skip
        dist.init_process_group("gloo", store=dist.FileStore(str(folder / "store"), RANKS), rank=rank, world_size=RANKS)
        found = work(options)
        if rank == 0:
            (folder / "found").write_text(json.dumps(found))
    except BaseException:  # noqa: BLE001 - the process ends here
        traceback.print_exc()
        return 1
    return 0


def _time_engine(options: argparse.Namespace) -> float:
    model = _model(options)[0]
    began = time.process_time()
    {"ours": _ours, "accelerate": _prepared}[options.way](model)
    return time.process_time() - began


def _time_steps(options: argparse.Namespace) -> dict[str, list[float]]:
    import torch.distributed as dist  # noqa: PLC0415

    steps = {}
    for way, make in (("ours", _ours), ("accelerate", _prepared)):
        model, given = _model(options)
        steps[way] = make(model)(given)
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    for number in range(options.rounds + 2):
        for way in WAYS if number % 2 else reversed(WAYS):
            dist.barrier()
            began = time.perf_counter()
            steps[way]()
            dist.barrier()
            if number > 1:  # the first ones make what all need
                seconds[way].append(time.perf_counter() - began)
    return seconds


def _ddp_bytes(_options: argparse.Namespace) -> dict[str, float]:
    """Of both ranks, by the kernel's count of what the loopback carried."""
    import torch  # noqa: PLC0415
    from accelerate import Accelerator  # noqa: PLC0415
    from torch.nn.parallel import DistributedDataParallel  # noqa: PLC0415

    wrap = {
        "ours": lambda model: DistributedDataParallel(model, init_sync=False),
        "accelerate": Accelerator(cpu=True).prepare_model,
    }
    found, kept = {}, []
    for way in WAYS:
        frozen = torch.nn.Linear(8192, 8192, dtype=torch.bfloat16).requires_grad_(requires_grad=False)
        model = torch.nn.Sequential(frozen, torch.nn.Linear(8, 8))
        before = _sent()
        kept.append(wrap[way](model))
        found[way] = round((_sent() - before) / 1e6, 1)
    return found


def _sent() -> int:
    lines = Path("/proc/net/dev").read_text().splitlines()
    return next(int(line.split()[9]) for line in lines if line.strip().startswith("lo:"))


def _model(options: argparse.Namespace) -> tuple[Any, dict[str, Any]]:
    import torch  # noqa: PLC0415
    from flux_shapes import Work, make_inputs, make_model  # noqa: PLC0415

    from oarlock_api.engine import Attention  # noqa: PLC0415
    from oarlock_trainer.models.compute.attention import attend_with  # noqa: PLC0415
    from oarlock_trainer.models.flux import forward  # noqa: PLC0415

    double, single = (int(number) for number in options.blocks.split(","))
    work = Work(
        double=double, single=single, width=options.width, text_width=4096, pixels=256, text_tokens=64, batch=1,
    )  # fmt: skip
    cpu = torch.device("cpu")
    model = make_model(work, device=cpu, dtype=torch.bfloat16)
    forward.install(model, attend=attend_with(Attention.SDPA), recomputed=0)
    return model, make_inputs(work, device=cpu, dtype=torch.bfloat16)


def _training() -> Training:
    return Training.model_validate(
        {
            "model": {"family": "Flux1", "path": "/"}, "steps": 1, "optimizer": {"learningRate": RATE}, "batchSize": 1,
            "data": {"datasets": [{"name": "d", "source": {"path": "/"}}]},
        }
    )  # fmt: skip


def _ours(model: Any) -> Callable[[dict[str, Any]], Step]:
    import torch.distributed as dist  # noqa: PLC0415

    from oarlock_trainer.engine.initialize import initialize  # noqa: PLC0415
    from oarlock_trainer.runtime.job import RankInfo  # noqa: PLC0415

    rank = dist.get_rank()
    engine = initialize(
        model, _training(), RankInfo(rank=rank, local_rank=rank, world_size=RANKS, local_world_size=RANKS)
    )

    def prepare(given: dict[str, Any]) -> Step:
        def step() -> float:
            loss = engine.model(**given)[0].float().square().mean()
            engine.backward(loss)
            engine.step(RATE)
            return float(loss.detach())

        return step

    return prepare


def _prepared(model: Any) -> Callable[[dict[str, Any]], Step]:
    from accelerate import Accelerator, DeepSpeedPlugin  # noqa: PLC0415

    from oarlock_trainer.engine.deepspeed import configuration, skip_operator_probes  # noqa: PLC0415
    from oarlock_trainer.engine.optimizers import make_optimizer  # noqa: PLC0415

    skip_operator_probes()
    plugin = DeepSpeedPlugin(hf_ds_config=configuration(_training(), world_size=RANKS))
    accelerator = Accelerator(mixed_precision="bf16", deepspeed_plugin=plugin)
    model, optimizer = accelerator.prepare(model, make_optimizer(model.parameters(), _training().optimizer))

    def prepare(given: dict[str, Any]) -> Step:
        def step() -> float:
            for group in optimizer.param_groups:
                group["lr"] = RATE
            with accelerator.accumulate(model):
                loss = model(**given)[0].float().square().mean()
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            return float(loss.detach())

        return step

    return prepare


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.3f} (from {min(values):.3f} to {max(values):.3f})"


if __name__ == "__main__":
    main()
