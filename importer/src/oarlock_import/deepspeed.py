"""What DeepSpeed's configuration decides.

With DeepSpeed SimpleTuner ignores its own optimizer, schedule and clipping: it runs the ones of DeepSpeed's configuration,
and where that has none, AdamW with the adam_* options and WarmupLR. The job does the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oarlock_import import values
from oarlock_import.rows import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oarlock_import.draft import Draft
    from oarlock_import.options import Options

_NESTED = ("zero_optimization", "optimizer", "scheduler", "bf16", "fp16")
_ADAMW = ("adamw", "adam", "fusedadam", "cpuadam", "deepspeedcpuadam")
"""DeepSpeed's Adam decouples weight decay unless it is told not to."""
_OUTRANKED = "with DeepSpeed SimpleTuner passes over it, and so does the job"


def flat(config: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Keys of nested groups joined by dots."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        name = f"{above}{key}"
        if isinstance(value, dict) and name.split(".", maxsplit=1)[0] in _NESTED:
            found |= flat(value, f"{name}.")
        else:
            found[name] = value
    return found


def place(deepspeed: Options, options: Options, draft: Draft) -> None:
    """Write engine, accumulation, clipping, optimizer and schedule."""
    _zero(deepspeed, draft)
    _clipping(deepspeed, options, draft)
    _optimizer(deepspeed, options, draft)
    _schedule(deepspeed, options, draft)
    deepspeed.settle(draft)


def _number(deepspeed: Options, key: str) -> float | None:
    """A number that may be `auto` or `none`: both leave it to somebody else."""
    raw = deepspeed.value(key)
    if raw is None or str(raw).lower() in ("auto", "none"):
        deepspeed.ignored(key, "leaves it to SimpleTuner")
        return None
    try:
        return float(values.read(Kind.NUMBER, raw))
    except ValueError as error:
        deepspeed.refused(key, str(error))
        return None


def accumulation(deepspeed: Options) -> int | None:
    """Micro-batches per step, where DeepSpeed's configuration says so."""
    steps = _number(deepspeed, "gradient_accumulation_steps")
    if steps is None:
        return None
    if not steps.is_integer():
        deepspeed.refused("gradient_accumulation_steps", "is no whole number")
        return None
    deepspeed.mapped("gradient_accumulation_steps", words=f"-> training.gradientAccumulation: {int(steps)}")
    return int(steps)


def _zero(deepspeed: Options, draft: Draft) -> None:
    if deepspeed.value("zero_optimization.stage") in (1, 2, 3):
        deepspeed.carry(draft, "zero_optimization.stage")
    else:
        deepspeed.refused("zero_optimization.stage", "stages are 1, 2 and 3; stage 1 has the numbers of stage 0")
    deepspeed.carry(draft, "zero_optimization.offload_optimizer.device")
    if "zero_optimization.overlap_comm" in deepspeed:
        deepspeed.carry(draft, "zero_optimization.overlap_comm")
    elements = _number(deepspeed, "zero_optimization.reduce_bucket_size")
    if elements is not None:
        deepspeed.carry(draft, "zero_optimization.reduce_bucket_size", value=int(elements))


def _clipping(deepspeed: Options, options: Options, draft: Draft) -> None:
    bound = _number(deepspeed, "gradient_clipping")
    if bound:
        draft.put("training.gradientClipping.method", "Norm")
        draft.put("training.gradientClipping.max", bound)
        deepspeed.mapped("gradient_clipping", words=f"-> training.gradientClipping: Norm {bound}")
    else:
        draft.put("training.gradientClipping.method", "None")
        deepspeed.mapped("gradient_clipping", words="-> training.gradientClipping.method: None")
    options.ignored("max_grad_norm", f"{_OUTRANKED}: gradient_clipping of DeepSpeed decides")
    options.ignored("grad_clip_method", f"{_OUTRANKED}: gradient_clipping of DeepSpeed decides")


def _optimizer(deepspeed: Options, options: Options, draft: Draft) -> None:
    name = str(deepspeed.value("optimizer.type")).lower()
    if name not in (*_ADAMW, "lion"):
        deepspeed.refused("optimizer.type", f"{name} is not here: use AdamW or Lion")
        return
    ours = "Lion" if name == "lion" else "AdamW"
    draft.put("training.optimizer.name", ours)
    draft.put("training.optimizer.weightDecayOn", "All")
    deepspeed.mapped("optimizer.type", words=f"-> training.optimizer.name: {ours}")
    options.ignored("optimizer", f"{_OUTRANKED}: it runs {ours}")
    for key in ("optimizer_config", "optimizer_beta1", "optimizer_beta2"):
        options.ignored(key, _OUTRANKED)
    for key, fallback, field in (
        ("optimizer.params.lr", "learning_rate", "learningRate"),
        ("optimizer.params.weight_decay", "adam_weight_decay", "weightDecay"),
        ("optimizer.params.eps", "adam_epsilon", "options.eps"),
    ):
        if ours == "Lion" and field == "options.eps":
            options.ignored(fallback, "Lion has none")
            continue
        _either(deepspeed, key, options=options, fallback=fallback, draft=draft, to=f"training.optimizer.{field}")
    betas = deepspeed.value("optimizer.params.betas")
    if isinstance(betas, list) and len(betas) == 2:
        deepspeed.carry(draft, "optimizer.params.betas")
        options.ignored("adam_beta1", "DeepSpeed's configuration has its own")
        options.ignored("adam_beta2", "DeepSpeed's configuration has its own")
    else:
        draft.put("training.optimizer.betas", [options.value("adam_beta1"), options.value("adam_beta2")])
        options.mapped("adam_beta1", words="-> training.optimizer.betas")
        options.mapped("adam_beta2", words="-> training.optimizer.betas")


def _either(deepspeed: Options, key: str, *, options: Options, fallback: str, draft: Draft, to: str) -> None:
    """Write DeepSpeed's own value, else SimpleTuner's."""
    own = _number(deepspeed, key)
    if own is None:
        options.carry(draft, fallback, to=to)
    else:
        deepspeed.carry(draft, key, to=to, value=own)
        options.ignored(fallback, "DeepSpeed's configuration has its own")


def _schedule(deepspeed: Options, options: Options, draft: Draft) -> None:
    kind = str(deepspeed.value("scheduler.type")).lower()
    names = {"warmuplr": "Constant", "warmupdecaylr": "Linear"}
    if kind not in names:
        deepspeed.refused("scheduler.type", f"{kind} is not here: use WarmupLR or WarmupDecayLR")
        return
    field = "training.optimizer.schedule"
    draft.put(f"{field}.name", names[kind])
    deepspeed.mapped("scheduler.type", words=f"-> {field}.name: {names[kind]}")
    if names[kind] == "Linear":
        draft.put(f"{field}.endLearningRate", 0)
    own = _number(deepspeed, "scheduler.params.warmup_num_steps")
    steps = options.value("lr_warmup_steps") if own is None else int(own)
    line = str(deepspeed.value("scheduler.params.warmup_type")).lower() == "linear"
    differs = "" if line or not steps else "DeepSpeed's warm-up rises along a logarithm, the job's along a line"
    if own is None:
        options.carry(draft, "lr_warmup_steps", differs=differs)
    else:
        deepspeed.carry(draft, "scheduler.params.warmup_num_steps", value=steps, differs=differs)
        options.ignored("lr_warmup_steps", "DeepSpeed's configuration has its own")
    if "scheduler.params.warmup_type" in deepspeed:
        deepspeed.mapped("scheduler.params.warmup_type", words="a line" if line else "a line as well")
    for key in ("lr_scheduler", "lr_power", "lr_end"):
        options.ignored(key, f"{_OUTRANKED}: the schedule is DeepSpeed's, {names[kind]} after the warm-up")
