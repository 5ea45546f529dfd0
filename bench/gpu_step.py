"""A training step of FLUX.1's real blocks on a GPU: as diffusers has it and as a job has it, by kernel, compiled, recomputed.

    .venv/bin/python bench/gpu_step.py [--pixels 1024] [--batch 1] [--blocks auto] [--rounds 20] [--only NAME ...]

As many of FLUX.1's blocks as fit, one double to two single ones; "auto" tries. Each contender runs alone, in a process of
its own; each figure is a median of single steps, told by the GPU's own clock. ms per image are also extended to all 57
blocks by their number: that column is a model, not a measurement. MFU counts useful work only (plan/flops.py).
Prints a table and writes bench/results/gpu/gpu-step.json after each contender. Where that file has results of the same work,
their number of blocks is taken, and only contenders that lack one are measured.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from data_report import RESULTS
from flux_shapes import HEAD, Work, make_inputs, make_model, step

from oarlock_api.engine import Attention, Compile
from oarlock_trainer.models.compute import attention, fp8
from oarlock_trainer.models.compute.compiled import compile_blocks
from oarlock_trainer.models.flux import forward
from oarlock_trainer.models.flux.architecture import shaped
from oarlock_trainer.models.flux.family import FLUX1
from oarlock_trainer.plan.flops import model_flops_utilization, peak_flops, training_flops
from oarlock_trainer.runtime.errors import ConfigurationError

GPU, DTYPE = torch.device("cuda"), torch.bfloat16
WIDTH, ALL_BLOCKS, TEXT_TOKENS = 3072, 57, 512
SIZES = (19, 12, 8, 4, 2, 1)
"""Numbers of double blocks that are tried, the most first."""
WARM = 3
CONTENDERS: dict[str, dict[str, Any]] = {
    "diffusers, eager": {"theirs": True},
    "diffusers, eager, all recomputed": {"theirs": True, "share": 1.0},
    "a job, eager": {},
    "a job, eager, half recomputed": {"share": 0.5},
    "a job, eager, all recomputed": {"share": 1.0},
    "a job, compiled": {"compile": "Default"},
    "a job, compiled, SDPA": {"compile": "Default", "attention": "SDPA"},
    "a job, compiled, CuDNN": {"compile": "Default", "attention": "CuDNN"},
    "a job, compiled, Flash2": {"compile": "Default", "attention": "Flash2"},
    "a job, compiled, Flash3": {"compile": "Default", "attention": "Flash3"},
    "a job, compiled, lean": {"compile": "Default", "lean": True},
    "a job, compiled, lean, masked": {"compile": "Default", "lean": True, "masked": True},
    "a job, compiled, half recomputed": {"compile": "Default", "share": 0.5},
    "a job, compiled, all recomputed": {"compile": "Default", "share": 1.0},
    "a job, max-autotune": {"compile": "MaxAutotune"},
    "a job, compiled, float8": {"compile": "Default", "float8": True},
}


def main() -> int:
    """Measure the contenders one after the other; 1 where none could be measured."""
    options = _options()
    if not torch.cuda.is_available():
        print("bench/gpu_step.py needs a CUDA GPU, and this machine has none: nothing was measured.")
        return 1
    if options.contender:
        print(json.dumps(measure(CONTENDERS[options.contender], _work(options, int(options.blocks)), options.rounds)))
        return 0
    facts, results = _kept(options)
    sizes = () if results else SIZES if options.blocks == "auto" else (int(options.blocks),)
    for double in sizes:  # what keeps the most decides: all contenders compute the same blocks
        results = {_FIRST: _alone(_FIRST, double, options)}
        facts["double"] = double
        if "error" not in results[_FIRST]:
            break
    for name in options.only:
        if name not in results:
            results[name] = _alone(name, facts["double"], options)
        print(_line(name, results[name]), flush=True)
        options.result.parent.mkdir(parents=True, exist_ok=True)  # a machine that is lent may be taken back any moment
        options.result.write_text(json.dumps({"facts": facts, "results": results}, indent=1) + "\n")
    return 1 if all("error" in one for one in results.values()) else 0


_FIRST = "diffusers, eager"


def _kept(options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """The work's facts, and what was measured of it before on this kind of GPU with this torch."""
    asked = {name: getattr(options, name) for name in ("pixels", "batch", "rounds")}
    facts = asked | {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    if options.result.exists():
        kept = json.loads(options.result.read_text())
        if kept["facts"] | {"double": None} == facts | {"double": None}:
            return kept["facts"], kept["results"]
    return facts, {}


def measure(way: dict[str, Any], work: Work, rounds: int) -> dict[str, Any]:
    """Figures of one contender."""
    try:
        model, given, kernel = _prepared(way, work)
        began = time.monotonic()
        for _ in range(WARM):
            step(model, given)
        torch.cuda.synchronize()
        warm_up = time.monotonic() - began
    except torch.OutOfMemoryError:
        return {"error": "does not fit"}
    except ConfigurationError as error:
        return {"error": str(error)}
    torch.cuda.reset_peak_memory_stats()
    milliseconds = []
    for _ in range(rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        step(model, given)
        end.record()
        end.synchronize()
        milliseconds.append(start.elapsed_time(end))
    image = statistics.median(milliseconds) / work.batch
    flops = training_flops(
        shaped(double_blocks=work.blocks, single_blocks=0, heads=work.width // HEAD), tokens=work.tokens
    )
    peak = peak_flops(torch.cuda.get_device_name())
    return {
        "ms_per_image": image,
        "steps_ms": milliseconds,
        "all_blocks_ms_model": image * ALL_BLOCKS / work.blocks,
        "mfu": model_flops_utilization(flops=flops, seconds=image / 1e3, devices=1, peak=peak) if peak else None,
        "peak_gb": torch.cuda.max_memory_allocated() / 1e9,
        "warm_up_s": warm_up,
        "attention": kernel,
        "kernels": _kernels(model, given),
    }


def _prepared(way: dict[str, Any], work: Work) -> tuple[Any, dict[str, Any], str]:
    model = make_model(work, device=GPU, dtype=DTYPE)
    given = make_inputs(work, device=GPU, dtype=DTYPE)
    if way.get("theirs"):
        if way.get("share"):
            model.enable_gradient_checkpointing()
        return model, given, "diffusers' default"
    if way.get("float8"):
        fp8.require_float8(GPU)
        fp8.use_float8(FLUX1.blocks_of(model))
    masked = way.get("masked", False)
    if masked:
        seen = torch.ones(work.batch, 1, 1, work.tokens, dtype=torch.bool, device=GPU)
        seen[..., TEXT_TOKENS // 2 : TEXT_TOKENS] = False  # half of the text is padding
        given["joint_attention_kwargs"] = {"attention_mask": seen}
    kernel = attention.choose(Attention(way.get("attention", "Auto")), device=GPU, masked=masked)
    recomputed = round(work.blocks * way.get("share", 0.0))
    forward.install(model, attend=attention.attend_with(kernel), recomputed=recomputed)
    ran = attention.assert_ran(kernel, lambda: step(model, given))
    settings = Compile.model_validate({"mode": way.get("compile", "None")})
    scratch, lean = Path(tempfile.gettempdir()), way.get("lean", False)
    compile_blocks(FLUX1.blocks_of(model), settings, device=GPU, scratch=scratch, lean=lean)
    return model, given, ran


def _kernels(model: Any, given: dict[str, Any]) -> list[str]:
    """The GPU's kernels that took the most time in a step, and all of attention."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as seen:
        step(model, given)
        torch.cuda.synchronize()
    events = sorted(seen.key_averages(), key=lambda event: -event.self_device_time_total)
    words = ("flash", "fmha", "sdpa", "attention")
    return [
        f"{event.self_device_time_total / 1e3:.2f} ms {event.key[:100]}"
        for place, event in enumerate(events)
        if place < 8 or any(word in event.key.lower() for word in words)
    ]


def _alone(name: str, double: int, options: argparse.Namespace) -> dict[str, Any]:
    """One contender in a process of its own: no other's memory, no other's compiled code."""
    arguments = ["--contender", name, "--blocks", str(double), "--rounds", str(options.rounds)]
    arguments += ["--pixels", str(options.pixels), "--batch", str(options.batch)]
    done = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["ended without a word"])[-1]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _work(options: argparse.Namespace, double: int) -> Work:
    return Work(
        double=double,
        single=2 * double,
        width=WIDTH,
        text_width=4096,
        pixels=options.pixels,
        text_tokens=TEXT_TOKENS,
        batch=options.batch,
    )


def _line(name: str, result: dict[str, Any]) -> str:
    if "error" in result:
        return f"{name:<36}{result['error']}"
    mfu = "unknown" if result["mfu"] is None else f"{result['mfu']:.1%}"
    return (
        f"{name:<36}{result['ms_per_image']:>9.2f} ms/image{mfu:>9} MFU{result['peak_gb']:>8.1f} GB"
        f"{result['all_blocks_ms_model']:>9.1f} ms with all blocks (model)   {result['attention']}"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pixels", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--blocks", default="auto", help="number of double blocks, with twice as many single ones")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, default=list(CONTENDERS), metavar="NAME")
    parser.add_argument("--result", type=Path, default=RESULTS / "gpu" / "gpu-step.json")
    parser.add_argument("--contender", choices=CONTENDERS, help="that one alone, as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
