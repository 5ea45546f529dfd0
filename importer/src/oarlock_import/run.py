"""Length, batches, seed, memory, average and checkpoints of the run, and the objective's options that depend on others."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from oarlock_import import deepspeed, values
from oarlock_import.family import family_of, words_of
from oarlock_import.tables.training import OFFLOADING, ON_THE_GPUS

if TYPE_CHECKING:
    from oarlock_import.draft import Draft
    from oarlock_import.launch import Launch
    from oarlock_import.options import Options

_SEED = 42
_DRAWN = (0, -1)
"""Seeds that stand for one that is drawn when SimpleTuner starts, as no seed does."""
_CHECKPOINTING = (
    "gradient_checkpointing",
    "gradient_checkpointing_interval",
    "gradient_checkpointing_segment_stride",
)
_UNLIMITED = 1000
"""The most checkpoints that a job keeps."""


def place(options: Options, launch: Launch, draft: Draft) -> None:
    """Write what belongs to no other part."""
    _length(options, draft)
    _accumulation(options, launch, draft)
    if options.value("seed") not in (None, *_DRAWN):
        options.carry(draft, "seed")
    else:
        draft.put("training.seed", _SEED)
        options.mapped("seed", words=f"-> training.seed: {_SEED}; SimpleTuner draws one for each run")
    if "attention_mechanism" in options:
        options.carry(draft, "attention_mechanism")
    _activation_checkpointing(options, draft)
    _memory(options)
    _average(options, draft)
    _checkpoints(options, draft)
    _objective(options, draft)
    draft.put("training.aspectBuckets", value=True)
    directory = posixpath.basename(posixpath.normpath(options.value("output_dir") or ""))
    if directory not in ("", "."):
        shared = (
            "a folder that models are often kept in, and that each job imported from SimpleTuner's usual output_dir has: "
            "name another in output.directory, and another job with --name"
        )
        differs = shared if directory == "models" else ""
        options.carry(draft, "output_dir", value=directory.lstrip("."), differs=differs)


def _length(options: Options, draft: Draft) -> None:
    steps, epochs = options.value("max_train_steps"), options.value("num_train_epochs")
    if steps and epochs and "num_train_epochs" in options:
        options.refused(
            "num_train_epochs", "SimpleTuner itself refuses steps and epochs together; set one of them to 0"
        )
    elif steps:
        options.carry(draft, "max_train_steps")
    elif epochs:
        options.carry(draft, "num_train_epochs")
    else:
        options.refused("max_train_steps", "neither steps nor epochs say how long to train")
    options.ignored("max_train_steps", "0: the epochs count")
    options.ignored("num_train_epochs", "0: the steps count")


def _accumulation(options: Options, launch: Launch, draft: Draft) -> None:
    """DeepSpeed's configuration outranks accelerate's, and that SimpleTuner's own option."""
    key, field = "gradient_accumulation_steps", "training.gradientAccumulation"
    own = deepspeed.accumulation(launch.deepspeed) if launch.deepspeed is not None else None
    if own is not None:
        draft.put(field, own)
    elif key in launch.accelerate:
        launch.accelerate.carry(draft, key)
    else:
        options.carry(draft, key)
    for outranked in (launch.accelerate, options):
        outranked.ignored(key, "DeepSpeed's or accelerate's configuration outranks it")


def _activation_checkpointing(options: Options, draft: Draft) -> None:
    """SimpleTuner recomputes `interval` blocks together and begins anew after `stride`, in each of the lists of blocks.

    Here each block is recomputed by itself, which changes no number.
    """
    switch, width, apart = _CHECKPOINTING
    interval = max(options.value(width) or 1, 1)
    stride = options.value(apart) or interval
    family = family_of(options, draft)
    shape = family.published
    kinds = [kind.number for kind in shape.kinds] if len(family.blocks) > 1 else [shape.blocks]
    recomputed = sum(block % stride < interval for blocks in kinds for block in range(blocks))
    if not options.value(switch):
        options.carry(draft, switch, value="None")
        why = "no block is recomputed"
    elif stride < interval:
        options.refused(apart, f"SimpleTuner itself takes none below {width}; raise it, or remove it")
        why = f"{apart} is refused"
    elif recomputed == shape.blocks:
        options.carry(draft, switch, value="Full")
        why = "every block is recomputed, together with others or by itself"
    else:
        options.carry(draft, switch, value="Partial")
        differs = f"{recomputed} of {shape.blocks} blocks as there, here the first ones"
        options.carry(draft, apart, value=recomputed * 100 // shape.blocks, differs=differs)
        why = f"{apart} tells the share of the blocks"
    for key in (switch, width, apart):
        options.ignored(key, why)


def _memory(options: Options) -> None:
    """What SimpleTuner does to save memory, and a job does not: the numbers are the same, the GPUs have to hold more."""
    for key in (*OFFLOADING, "musubi_blocks_to_swap"):
        if options.value(key):
            options.mapped(key, words="-> nothing", differs=f"{ON_THE_GPUS}: more of their memory, the same numbers")
        options.ignored(key, "nothing is moved off the GPUs")
    share = options.value("context_parallel_size") or 1
    if share > 1:
        differs = (
            f"no sequence is split: {share} GPUs share a batch there, and here each has its own, so that a step sees {share} "
            f"times as many samples; divide gradient_accumulation_steps, or the GPUs, by {share} for as many"
        )
        options.mapped("context_parallel_size", words="-> nothing", differs=differs)
    options.ignored("context_parallel_size", "no sequence is split")


def _average(options: Options, draft: Draft) -> None:
    keys = ("ema_decay", "ema_device", "ema_update_interval")
    if not options.value("use_ema"):
        options.ignored("use_ema", "false")
        for key in (*keys, "ema_warmup_steps"):
            options.ignored(key, "use_ema is not set")
        return
    if options.value("ema_warmup_steps"):
        options.refused("ema_warmup_steps", "an average begins with the first step: set it to 0")
    options.ignored("ema_warmup_steps", "0: an average begins with the first step")
    options.mapped("use_ema", words="-> training.ema")
    on_the_cpu = not values.asks_for_nothing(options.raw("ema_cpu_only") or False, (False,))
    for key in keys:
        options.carry(draft, key, value="CPU" if key == "ema_device" and on_the_cpu else None)


def _checkpoints(options: Options, draft: Draft) -> None:
    keep = options.value("checkpoints_total_limit")
    differs = "" if keep > 0 else f"SimpleTuner keeps all, a job at most {_UNLIMITED}"
    options.carry(draft, "checkpoints_total_limit", value=keep if keep > 0 else _UNLIMITED, differs=differs)
    if options.value("checkpoint_step_interval") <= 0:
        options.refused(
            "checkpoint_step_interval",
            "SimpleTuner then saves at the end alone; a job goes on from its checkpoints, so write how many steps apart",
        )
    if options.value("resume_from_checkpoint") == "latest":
        differs = "checkpoints of SimpleTuner are not read: the job begins anew, and resumes from its own"
        options.carry(draft, "resume_from_checkpoint", value="Auto", differs=differs)
    else:
        options.refused(
            "resume_from_checkpoint",
            "checkpoints of SimpleTuner are not read; write latest, and begin from its weights: a diffusers directory "
            "as pretrained_model_name_or_path",
        )


def _noise_levels(options: Options, draft: Draft) -> None:
    """Which distribution; of both switches SimpleTuner looks at the uniform one first."""
    uniform, beta = options.value("flow_use_uniform_schedule"), options.value("flow_use_beta_schedule")
    parameters = ("flow_beta_schedule_alpha", "flow_beta_schedule_beta")
    if beta and not uniform:
        options.carry(draft, "flow_use_beta_schedule", value="Beta")
        options.ignored("flow_use_uniform_schedule", "flow_use_beta_schedule decides")
        for key in parameters:
            options.carry(draft, key)
    else:
        options.carry(draft, "flow_use_uniform_schedule", value="Uniform" if uniform else "Sigmoid")
        for key in ("flow_use_beta_schedule", *parameters):
            options.ignored(key, "the noise level is not drawn by Beta")
    for field, value in (("minNoise", 0.0), ("maxNoise", 1.0), ("weighting", "None")):
        draft.put(f"training.objective.{field}", value)


def _guidance(options: Options, draft: Draft) -> None:
    """What the model is told in training, if it is told any."""
    constant, random = ("flux_guidance_value",), ("flux_guidance_min", "flux_guidance_max")
    if not family_of(options, draft).published.has_guidance:
        for key in ("flux_guidance_mode", *constant, *random):
            options.ignored(key, "belongs to another model family")
        return
    if (fixed := words_of(options).guidance) is not None:
        draft.put("training.objective.guidance", {"mode": "Constant", "value": fixed})
        told = f"SimpleTuner's own of {words_of(options).family.name} -> training.objective.guidance.value: {fixed:g}"
        for key in ("flux_guidance_mode", *constant, *random):
            options.ignored(key, f"{told}, whatever options say")
        options.mapped("flux_guidance_mode", words=told)
        return
    is_random = options.value("flux_guidance_mode") == "random-range"
    for key in random if is_random else constant:
        options.carry(draft, key)
    for key in constant if is_random else random:
        options.ignored(key, "belongs to the other flux_guidance_mode")


def _objective(options: Options, draft: Draft) -> None:
    shift = options.value("flow_schedule_shift")
    options.carry(draft, "flow_schedule_shift", value=shift if shift > 0 else 1.0)
    _noise_levels(options, draft)
    _guidance(options, draft)
    if options.value("loss_type") != "l2":
        if options.value("huber_schedule") != "constant":
            options.refused("huber_schedule", "the threshold is constant here; set it to constant")
        if options.value("huber_c") != 0.1:
            options.refused("huber_c", "the threshold is 0.1 here")
        options.mapped("huber_schedule", words="constant, as here")
        options.mapped("huber_c", words="0.1, as here")
    for key in ("huber_schedule", "huber_c"):
        options.ignored(key, "loss_type is l2")
