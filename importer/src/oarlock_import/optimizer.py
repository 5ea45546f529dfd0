"""Optimizer, schedule and clipping without DeepSpeed.

SimpleTuner takes betas, weight decay and epsilon from each optimizer's own defaults, not from the adam_* options, unless
optimizer_config or optimizer_beta1 and optimizer_beta2 say otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from oarlock_import import values
from oarlock_import.rows import Kind

if TYPE_CHECKING:
    from oarlock_import.draft import Draft
    from oarlock_import.options import Options

FIELD = "training.optimizer"


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One of SimpleTuner's optimizers that there is a counterpart for, with its defaults."""

    name: str
    betas: tuple[float, float]
    weight_decay: float
    eps: float | None = None
    differs: str = ""


_BF16 = (
    "SimpleTuner keeps weights and moments in bfloat16 and rounds them stochastically, the job keeps float32; as small is "
    "optimizer.name AdamWBF16 with engine.strategy DDP, for one GPU"
)
_PRODIGY = (
    "SimpleTuner's is Prodigy Plus: schedule-free, factored, bfloat16; the job's is Prodigy, with optimizer.schedule"
)
_FREE = "SimpleTuner's weights and state are bfloat16, the job's float32"
_WITHOUT_SCHEDULE = "adamw_schedulefree"
ALGORITHMS = {
    "torch-adamw": Algorithm("AdamW", (0.9, 0.999), 0.01, 1e-8),
    "adamw_bf16": Algorithm("AdamW", (0.9, 0.999), 0.01, 1e-6, _BF16),
    "optimi-adamw": Algorithm("AdamW", (0.9, 0.99), 0.0, 1e-6),
    "bnb-adamw": Algorithm("AdamW", (0.9, 0.999), 0.01, 1e-6),
    "bnb-adamw-paged": Algorithm("AdamW", (0.9, 0.999), 0.01, 1e-6),
    "bnb-adamw8bit": Algorithm("AdamW8Bit", (0.9, 0.999), 0.01, 1e-6),
    "bnb-adamw8bit-paged": Algorithm("AdamW8Bit", (0.9, 0.999), 0.01, 1e-6),
    "ao-adamw8bit": Algorithm("AdamW8Bit", (0.9, 0.999), 0.01, 1e-6),
    "optimi-lion": Algorithm("Lion", (0.9, 0.99), 0.0),
    "bnb-lion": Algorithm("Lion", (0.9, 0.99), 0.0),
    "bnb-lion-paged": Algorithm("Lion", (0.9, 0.99), 0.0),
    "adamw_schedulefree": Algorithm("AdamWScheduleFree", (0.9, 0.999), 0.01, 1e-8, _FREE),
    "adamw_schedulefree+aggressive": Algorithm("AdamWScheduleFree", (0.9, 0.999), 0.001, 1e-6, _FREE),
    "adamw_schedulefree+no_kahan": Algorithm("AdamWScheduleFree", (0.9, 0.999), 0.001, 1e-6, _FREE),
    "prodigy": Algorithm("Prodigy", (0.9, 0.99), 0.0, 1e-8, _PRODIGY),
}
_DECAY = "SimpleTuner leaves embeddings out of weight decay as well, the job biases and norms alone"
_OF_PRODIGY = {"d0": "options.d0", "d_coef": "options.dCoef"}
_SETTINGS = {"weight_decay": "weightDecay", "eps": "options.eps"} | _OF_PRODIGY
_WITHOUT_EFFECT = ("kahan_sum", "foreach", "fused", "min_8bit_size", "percentile_clipping")
_WAVES = ("cosine", "cosine_with_restarts", "sine")
_CONSTANT = ("constant", "constant_with_warmup")
_OLDER = {"cosine_with_warmup": "cosine"}
"""Names that SimpleTuner takes for others."""


def place(options: Options, draft: Draft) -> None:
    """Write optimizer, schedule and clipping."""
    options.carry(draft, "learning_rate")
    _algorithm(options, draft)
    _schedule(options, draft)
    _clipping(options, draft)
    for key in ("adam_beta1", "adam_beta2", "adam_epsilon", "adam_weight_decay"):
        options.ignored(key, "SimpleTuner uses it only with DeepSpeed, each optimizer has its own default")


def _algorithm(options: Options, draft: Draft) -> None:
    name = str(options.value("optimizer")).lower()
    algorithm = ALGORITHMS.get(name)
    if algorithm is None:
        options.refused("optimizer", f"{name} is not here: use one of {', '.join(ALGORITHMS)}")
        return
    settings = {"weight_decay": algorithm.weight_decay, "eps": algorithm.eps} | _config(options, algorithm)
    notes = (algorithm.differs, _DECAY if settings["weight_decay"] else "")
    options.carry(draft, "optimizer", value=algorithm.name, differs="; ".join(note for note in notes if note))
    for key, value in settings.items():
        if value is not None:
            draft.put(f"{FIELD}.{_SETTINGS[key]}", value)
    draft.put(f"{FIELD}.weightDecayOn", "Matrices")
    betas = list(algorithm.betas)
    both = "optimizer_beta1" in options and "optimizer_beta2" in options
    for index, key in enumerate(("optimizer_beta1", "optimizer_beta2")):
        if "optimizer_config" in options:
            options.ignored(key, "SimpleTuner passes over it where optimizer_config is set")
        elif not both:
            options.ignored(key, "SimpleTuner uses optimizer_beta1 and optimizer_beta2 only together")
        else:
            betas[index] = options.value(key)
            options.mapped(key, words=f"-> {FIELD}.betas")
    draft.put(f"{FIELD}.betas", betas)


def _config(options: Options, algorithm: Algorithm) -> dict[str, float]:
    """What optimizer_config, comma-separated name=value pairs, sets."""
    if "optimizer_config" not in options:
        return {}
    found: dict[str, float] = {}
    for pair in str(options.value("optimizer_config")).split(","):
        name, _, text = (part.strip() for part in pair.partition("="))
        if name in _WITHOUT_EFFECT:
            continue
        without = (name == "eps" and algorithm.eps is None) or (name in _OF_PRODIGY and algorithm.name != "Prodigy")
        if name not in _SETTINGS or without:
            options.refused("optimizer_config", f"{name} cannot be set here; remove it")
            continue
        try:
            found[name] = values.read(Kind.NUMBER, text)
        except ValueError as error:
            options.refused("optimizer_config", f"{name} {error}")
    set_here = ", ".join(f"{FIELD}.{_SETTINGS[name]}: {found[name]}" for name in found)
    options.mapped("optimizer_config", words=f"-> {set_here or 'nothing, it changes no number'}")
    return found


def _named(options: Options) -> str:
    """lr_scheduler as SimpleTuner has it once all options are read: a constant with steps to warm up has a warm-up."""
    given = str(options.value("lr_scheduler")).strip().lower()
    name = _OLDER.get(given, given)
    return "constant_with_warmup" if name == "constant" and (options.value("lr_warmup_steps") or 0) > 0 else name


def _schedule(options: Options, draft: Draft) -> None:
    name = _named(options)
    field = f"{FIELD}.schedule"
    if str(options.value("optimizer")).lower().startswith(_WITHOUT_SCHEDULE):
        draft.put(f"{field}.name", "Constant")
        options.carry(draft, "lr_warmup_steps")
        for key in ("lr_scheduler", "lr_power", "lr_end"):
            options.ignored(key, "SimpleTuner's adamw_schedulefree has a warm-up and no schedule")
        return
    if name in _WAVES:
        options.refused(
            "lr_scheduler",
            f"{name} of SimpleTuner is a wave whose period comes from lr_warmup_steps and the number of GPUs, not a decay "
            "over the run; use polynomial, linear or constant_with_warmup, or change optimizer.schedule of the job later",
        )
        return
    ours = {"linear": "Linear", "polynomial": "Polynomial"} | dict.fromkeys(_CONSTANT, "Constant")
    if name not in ours:
        options.refused("lr_scheduler", f"{name} is not here: use polynomial, linear or constant_with_warmup")
        return
    options.carry(draft, "lr_scheduler", value=ours[name])
    if name == "constant":
        draft.put(f"{field}.warmupSteps", 0)
        options.ignored("lr_warmup_steps", "0: there is no warm-up")
    else:
        options.carry(draft, "lr_warmup_steps")
    if name == "polynomial":
        options.carry(draft, "lr_power")
        options.carry(draft, "lr_end")
    elif name == "linear":
        draft.put(f"{field}.endLearningRate", 0)
    options.ignored("lr_power", "belongs to lr_scheduler polynomial")
    options.ignored("lr_end", f"lr_scheduler {name} does not use it")


def _clipping(options: Options, draft: Draft) -> None:
    bound, method = options.value("max_grad_norm"), str(options.value("grad_clip_method")).lower()
    if bound <= 0:
        draft.put("training.gradientClipping.method", "None")
        options.mapped("max_grad_norm", words="-> training.gradientClipping.method: None")
        options.ignored("grad_clip_method", "a max_grad_norm of 0 or less clips nothing")
        return
    if method not in ("value", "norm"):
        options.refused("grad_clip_method", f"{method} is not here: use value or norm")
        return
    options.carry(draft, "max_grad_norm")
    options.carry(draft, "grad_clip_method", value=method.capitalize())
