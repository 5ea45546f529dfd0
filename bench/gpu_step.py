"""A training step of FLUX.1's real blocks on a GPU: as diffusers has it and as a job has it, by kernel, compiled, recomputed.

    .venv/bin/python bench/gpu_step.py [--pixels 1024] [--batch 1] [--blocks auto] [--rounds 20] [--only NAME ...]

As many of FLUX.1's blocks as fit, one double to two single ones; "auto" tries. Each contender runs alone, in a process of
its own; each figure is a median of single steps, told by the GPU's own clock. ms per image are also extended to all 57
blocks by their number: that column is a model, not a measurement. MFU counts useful work only (plan/flops.py).
Prints a table and writes bench/results/gpu/gpu-step.json after each contender. Where that file has results of the same work,
their number of blocks is taken, and only contenders that lack one are measured, then those that crashed or were ended.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gpu_results
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
    """Measure the contenders one after the other; 1 where one crashed, or none could be measured."""
    options = _options()
    if not torch.cuda.is_available():
        print("bench/gpu_step.py needs a CUDA GPU, and this machine has none: nothing was measured.")
        return 1
    if options.contender:
        work, compiled = _work(options, int(options.blocks)), options.result.parent / "compiled"
        found = measure(CONTENDERS[options.contender], work, options.rounds, compiled=compiled)
        print(json.dumps(found))
        return 0
    facts, results = _kept(options)
    sizes = () if results else SIZES if options.blocks == "auto" else (int(options.blocks),)
    for double in sizes:  # what keeps the most decides: all contenders compute the same blocks
        results = {_FIRST: _alone(_FIRST, double, options)}
        facts["double"] = double
        if results[_FIRST].get("error") != _TOO_LARGE:
            break
    fresh = {_FIRST} if sizes else set()
    new = [name for name in options.only if name not in results]
    again = [name for name in options.only if "crashed" in results.get(name, {}) and name not in fresh]
    for name in options.only:
        if name not in (*new, *again):
            print(_line(name, results[name]), flush=True)
    gpu_results.write(options.result, {"facts": facts, "results": results})
    for name in (*new, *again):  # each is written: a machine that is lent may be taken back any moment
        gpu_results.write(options.result, {"facts": facts, "results": results | {name: _ENDED}})
        results[name] = _alone(name, facts["double"], options)
        gpu_results.write(options.result, {"facts": facts, "results": results})
        print(_line(name, results[name]), flush=True)
    crashed = any("crashed" in results[name] for name in options.only)
    return 1 if crashed or all("error" in one for one in results.values()) else 0


_FIRST, _TOO_LARGE = "diffusers, eager", "does not fit"
_ENDED = {"error": "ended while it was measured", "crashed": None}
_OUT_OF_MEMORY = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")
"""What libraries say that torch.OutOfMemoryError does not stand for."""


def _kept(options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """The work's facts, and what was measured of it before on this kind of GPU with this torch."""
    asked = {name: getattr(options, name) for name in ("pixels", "batch", "rounds")}
    facts = asked | {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    kept = gpu_results.read(options.result)
    if kept.get("facts", {}) | {"double": None} == facts | {"double": None}:
        return kept["facts"], kept["results"]
    return facts, {}


def measure(way: dict[str, Any], work: Work, rounds: int, *, compiled: Path) -> dict[str, Any]:
    """Figures of one contender. `compiled`: a folder for compiled code, which contenders with the same graphs share."""
    try:
        model, given, kernel = _prepared(way, work, compiled)
        began = time.monotonic()
        for _ in range(WARM):
            step(model, given)
        torch.cuda.synchronize()
        warm_up = time.monotonic() - began
    except torch.OutOfMemoryError:
        return {"error": _TOO_LARGE}
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


def _prepared(way: dict[str, Any], work: Work, compiled: Path) -> tuple[Any, dict[str, Any], str]:
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
    compile_blocks(FLUX1.blocks_of(model), settings, device=GPU, scratch=compiled, lean=way.get("lean", False))
    return model, given, ran


def _kernels(model: Any, given: dict[str, Any]) -> list[str]:
    """The GPU's kernels that took the most time in a step, and all of attention.

    Where the profiler can't, its words: a sandbox may refuse it, and what was measured by then counts.
    """
    try:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as seen:
            step(model, given)
            torch.cuda.synchronize()
    except (RuntimeError, AssertionError) as error:  # a torch without CUPTI asserts
        return [f"unknown: {str(error).partition(chr(10))[0]}"]
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
    arguments += ["--pixels", str(options.pixels), "--batch", str(options.batch), "--result", str(options.result)]
    done = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True, check=False)
    told = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode == 0 and told:
        found: dict[str, Any] = json.loads(told[-1])
        return found
    print(done.stderr, file=sys.stderr)
    why = (done.stderr.strip().splitlines() or ["ended without a word"])[-1]
    if any(words in why for words in _OUT_OF_MEMORY):
        return {"error": _TOO_LARGE}
    return {"error": why, "crashed": done.returncode}


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
