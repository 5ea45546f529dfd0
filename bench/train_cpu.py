"""Our forward and backward pass of a small FLUX.1 beside diffusers' own, on the CPU, in one process, turn by turn.

    .venv/bin/python bench/train_cpu.py [--blocks 2,4] [--width 512] [--pixels 512] [--text 128] [--batch 1] [--rounds 7]
                                        [--dtype bfloat16] [--threads 1] [--compile]

Prints a table and writes bench/results/train-cpu.json: seconds of a step, its processor time, that as a share of
diffusers' in the same way and round (with one thread, others at work change it little), and the bytes that autograd keeps
between forward and backward pass. A round in which others used the machine counts only where there is no better one. What
a GPU gains is another matter: see bench/gpu_step.py.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from data_report import OTHERS, RESULTS, Figures, quiet, watched
from flux_shapes import Work, make_inputs, make_model, step

from oarlock_api.engine import Attention, Compile
from oarlock_trainer.models.compute.attention import attend_with
from oarlock_trainer.models.compute.compiled import compile_blocks
from oarlock_trainer.models.flux import forward
from oarlock_trainer.models.flux.family import FLUX1

CPU = torch.device("cpu")
SECONDS, USED, RATIO, KEPT = "step, s", "CPU s", "CPU, of theirs", "kept, MB"


def main() -> None:
    """Measure all contenders in turn."""
    options = _options()
    torch.set_num_threads(options.threads)
    double, single = (int(number) for number in options.blocks.split(","))
    work = Work(
        double=double,
        single=single,
        width=options.width,
        text_width=4096,
        pixels=options.pixels,
        text_tokens=options.text,
        batch=options.batch,
    )
    dtype = getattr(torch, options.dtype)
    given = make_inputs(work, device=CPU, dtype=dtype)
    models = {
        name: prepare(make_model(work, device=CPU, dtype=dtype))
        for name, prepare in contenders(work, compiled=options.compile).items()
    }
    for model in models.values():
        step(model, given)  # compiles, and fills caches
    kept = {name: kept_bytes(model, given) / 1e6 for name, model in models.items()}
    rounds: dict[str, list[Figures]] = {name: [] for name in models}
    for _ in range(options.rounds):
        for name, model in models.items():
            figures: Figures = {KEPT: kept[name]}
            with watched(figures):
                began, used = time.perf_counter(), time.process_time()
                step(model, given)
                figures.update({SECONDS: time.perf_counter() - began, USED: time.process_time() - used})
            base = rounds[_base(name)][-1][USED] if name != _base(name) else figures[USED]
            rounds[name].append(figures | {RATIO: figures[USED] / base})
    _report(rounds, vars(options) | {"tokens": work.tokens, "cores": len(os.sched_getaffinity(0))})


def contenders(work: Work, *, compiled: bool) -> Mapping[str, Callable[[Any], Any]]:
    """Ways to compute the same model, by name: the first of each pair is diffusers'."""

    def ours(model: Any, *, recomputed: int = 0) -> Any:
        forward.install(model, attend=attend_with(Attention.SDPA), recomputed=recomputed)
        return model

    def theirs_recomputed(model: Any) -> Any:
        model.enable_gradient_checkpointing()
        return model

    def compiled_blocks(model: Any) -> Any:
        settings = Compile.model_validate({"mode": "Default"})
        compile_blocks(FLUX1.blocks_of(model), settings, device=CPU, scratch=Path(tempfile.gettempdir()))
        return model

    found: dict[str, Callable[[Any], Any]] = {
        "diffusers": lambda model: model,
        "ours": ours,
        "diffusers, recomputed": theirs_recomputed,
        "ours, recomputed": lambda model: ours(model, recomputed=work.blocks),
        "ours, half recomputed": lambda model: ours(model, recomputed=work.blocks // 2),
    }
    if compiled:
        found |= {"diffusers, compiled": compiled_blocks, "ours, compiled": lambda model: compiled_blocks(ours(model))}
    return found


def kept_bytes(model: Any, given: dict[str, Any]) -> int:
    """Bytes that wait for the backward pass, each storage once, without weights and inputs."""
    there = {one.untyped_storage().data_ptr() for one in model.parameters()}
    there |= {one.untyped_storage().data_ptr() for one in given.values() if isinstance(one, torch.Tensor)}
    kept: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in there:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        output = model(**given)[0]
    found = sum(kept.values())
    output.float().sum().backward()
    model.zero_grad(set_to_none=True)
    return found


def _base(name: str) -> str:
    """What it is compared with: diffusers' in the same way, where there is such."""
    way = name.partition(", ")[2]
    return f"diffusers, {way}" if way in {"recomputed", "compiled"} else "diffusers"


def _report(rounds: Mapping[str, Sequence[Figures]], facts: Mapping[str, object]) -> None:
    print(
        f"{'':<24}{SECONDS:>10}{'from':>8}{'to':>8}{USED:>10}{'from':>8}{'to':>8}{RATIO:>16}{'from':>8}{'to':>8}{KEPT:>11}{OTHERS:>16}"
    )
    for name, measured in rounds.items():
        best = quiet(measured)
        columns = []
        for figure, room in ((SECONDS, 10), (USED, 10), (RATIO, 16)):
            values = [one[figure] for one in best]
            columns.append(f"{statistics.median(values):>{room}.3f}{min(values):>8.3f}{max(values):>8.3f}")
        others = statistics.median(one[OTHERS] for one in best)
        print(f"{name:<24}{''.join(columns)}{measured[0][KEPT]:>11.1f}{others:>16.2f}")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "train-cpu.json").write_text(json.dumps({"facts": facts, "rounds": rounds}, indent=1) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", default="2,4", help="double and single blocks")
    parser.add_argument("--width", type=int, default=512, help="a multiple of 128")
    parser.add_argument("--pixels", type=int, default=512)
    parser.add_argument("--text", type=int, default=128, help="text tokens")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--compile", action="store_true", help="the compiled blocks, too: a minute or two before it starts"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
