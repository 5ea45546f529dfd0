"""A whole optimizer step on two ranks: ours beside diffusers' model under accelerate with DeepSpeed, as its example trains.

    .venv/bin/python bench/train_step.py [--blocks 2,4] [--width 512] [--pixels 512] [--batch 1] [--rounds 7]

Both train the same small FLUX.1 with the same loss on the same batch, ZeRO-1, bfloat16, AdamW, clipping by norm, over gloo on
the CPU, turn by turn in one pair of processes. Theirs is accelerate's Accelerator with its DeepSpeed plugin and
`accelerator.backward`, which is the path of diffusers' training scripts. On a CPU both exchange after the backward pass,
whatever is set, so what overlap gains does not show. Writes bench/results/train-step.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forked_ranks
from data_report import RESULTS

from oarlock_trainer.ranks import preload

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
import torch.distributed as dist  # noqa: E402
from flux_shapes import Work, make_inputs, make_model  # noqa: E402

RANKS = 2
RATE, NORM = 1e-4, 1.0
CPU = torch.device("cpu")


def main() -> None:
    """Fork the ranks; rank 0 reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", default="2,4", help="double and single blocks")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--pixels", type=int, default=512)
    parser.add_argument("--text", type=int, default=128, help="text tokens")
    parser.add_argument("--batch", type=int, default=1, help="of a rank and micro-batch")
    parser.add_argument("--accumulation", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        code = forked_ranks.run(RANKS, lambda rank: _measure(rank, Path(folder), options))
    sys.exit(code)


def _measure(rank: int, folder: Path, options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": str(RANKS),
        "LOCAL_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "DS_ACCELERATOR": "cpu",
    }  # fmt: skip
    dist.init_process_group("gloo", store=dist.FileStore(str(folder / "store"), RANKS), rank=rank, world_size=RANKS)
    double, single = (int(number) for number in options.blocks.split(","))
    work = Work(
        double=double, single=single, width=options.width, text_width=4096, pixels=options.pixels,
        text_tokens=options.text, batch=options.batch,
    )  # fmt: skip
    given = make_inputs(work, device=CPU, dtype=torch.bfloat16)
    target = torch.randn_like(given["hidden_states"], dtype=torch.float32)
    ways = {"accelerate": theirs(work, given, target, options), "ours": ours(work, given, target, options)}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    losses: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(options.rounds + 1):
        for name, step in ways.items():
            dist.barrier()
            began = time.perf_counter()
            losses[name].append(step())
            dist.barrier()
            if number:  # the first one makes what all need
                seconds[name].append(time.perf_counter() - began)
    if rank == 0:
        _report(seconds, losses, vars(options) | {"tokens": work.tokens})


def ours(work: Work, given: dict[str, Any], target: torch.Tensor, options: argparse.Namespace) -> Callable[[], float]:
    """The trainer's model, engine and step."""
    from oarlock_api.engine import Attention  # noqa: PLC0415
    from oarlock_api.training import Training  # noqa: PLC0415
    from oarlock_trainer.engine.initialize import initialize  # noqa: PLC0415
    from oarlock_trainer.models.compute.attention import attend_with  # noqa: PLC0415
    from oarlock_trainer.models.flux import forward  # noqa: PLC0415
    from oarlock_trainer.runtime.job import RankInfo  # noqa: PLC0415

    training = Training.model_validate(
        {
            "model": {"family": "Flux1", "path": "/"}, "steps": 1, "batchSize": options.batch,
            "gradientAccumulation": options.accumulation, "optimizer": {"learningRate": RATE},
            "gradientClipping": {"method": "Norm", "max": NORM},
            "data": {"datasets": [{"name": "d", "source": {"path": "/"}}]},
        }
    )  # fmt: skip
    model = make_model(work, device=CPU, dtype=torch.bfloat16)
    forward.install(model, attend=attend_with(Attention.SDPA), recomputed=0)
    rank = dist.get_rank()
    rank_info = RankInfo(rank=rank, local_rank=rank, world_size=RANKS, local_world_size=RANKS)
    engine = initialize(model, training, rank_info)

    def step() -> float:
        loss = torch.zeros(())
        for _ in range(options.accumulation):
            loss = torch.nn.functional.mse_loss(engine.model(**given)[0].float(), target)
            engine.backward(loss)
            engine.step(RATE)
        return float(loss.detach())

    return step


def theirs(work: Work, given: dict[str, Any], target: torch.Tensor, options: argparse.Namespace) -> Callable[[], float]:
    """Diffusers' model, prepared and stepped by accelerate."""
    from accelerate import Accelerator, DeepSpeedPlugin  # noqa: PLC0415

    plugin = DeepSpeedPlugin(
        hf_ds_config={
            "train_micro_batch_size_per_gpu": options.batch,
            "gradient_accumulation_steps": options.accumulation,
            "gradient_clipping": NORM,
            "bf16": {"enabled": True},
            "zero_optimization": {"stage": 1},
            "zero_allow_untested_optimizer": True,
            "steps_per_print": 2**31,
        }
    )
    accelerator = Accelerator(
        mixed_precision="bf16", deepspeed_plugin=plugin, gradient_accumulation_steps=options.accumulation
    )
    model = make_model(work, device=CPU, dtype=torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    model, optimizer = accelerator.prepare(model, optimizer)

    def step() -> float:
        loss = torch.zeros(())
        for _ in range(options.accumulation):
            with accelerator.accumulate(model):
                loss = torch.nn.functional.mse_loss(model(**given)[0].float(), target)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
        return float(loss.detach())

    return step


def _report(seconds: dict[str, list[float]], losses: dict[str, list[float]], facts: dict[str, Any]) -> None:
    ratios = [one / other for one, other in zip(seconds["accelerate"], seconds["ours"], strict=True)]
    for name, measured in seconds.items():
        print(
            f"{name:12} median {statistics.median(measured):.3f} s a step, from {min(measured):.3f} to {max(measured):.3f}; "
            f"loss {losses[name][0]:.4f} -> {losses[name][-1]:.4f}"
        )
    print(f"ours is faster by {statistics.median(ratios):.3f} x (from {min(ratios):.3f} to {max(ratios):.3f})")
    RESULTS.mkdir(exist_ok=True)
    body = {"facts": facts, "seconds": seconds, "losses": losses}
    (RESULTS / "train-step.json").write_text(json.dumps(body, indent=1) + "\n")


if __name__ == "__main__":
    main()
