"""Pictures, trackers and publishing: they change nothing that is trained."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from oarlock_api.weights import SEEING
from oarlock_import.family import family_of

if TYPE_CHECKING:
    from oarlock_import.draft import Draft
    from oarlock_import.options import Options
    from oarlock_import.places import Places

_PICTURES = ("validation_num_inference_steps", "validation_seed", "validation_step_interval")
_INTERVAL = "validation_step_interval"
_AT_THE_END = 1_000_000_000
"""Steps between pictures of a run that draws at its end alone: more than any has."""
_ASKED = (
    "validation_epoch_interval", "validation_prompt_library", "num_validation_images", "validation_randomize",
    "validation_using_datasets", "validation_input", "validation_guidance_real", "validation_noise_scheduler",
    "validation_method", "validation_external_script", "validation_preview", "enable_watermark",
)  # fmt: skip
"""Options for pictures that are refused where such are made."""
_FRAMES = 81
"""That SimpleTuner draws where no option says fewer: the most, too."""
_TRACKERS = {"tensorboard": "TensorBoard", "wandb": "Wandb"}


def place(options: Options, draft: Draft, *, places: Places) -> None:
    """Write validation, tracking and publish."""
    _pictures(options, draft, places)
    _trackers(options, draft, places)
    _hub(options, draft, places)


def _pictures(options: Options, draft: Draft, places: Places) -> None:
    prompt, library = options.value("validation_prompt"), options.value("user_prompt_library")
    off = options.value("validation_disable")
    if off or not (prompt or library):
        why = "validation_disable is set" if off else "there is no validation_prompt and no user_prompt_library"
        for key in (
            *_PICTURES,
            "validation_guidance",
            "validation_resolution",
            "validation_num_video_frames",
            "validation_prompt",
            "user_prompt_library",
        ):
            options.ignored(key, f"no pictures are made: {why}")
        for key in ("validation_guidance_skip_layers", *(_ASKED if off else ())):
            options.ignored(key, f"no pictures are made: {why}")
        options.ignored("validation_disable", "no pictures are made" if off else "false")
        return
    options.ignored("validation_disable", "false")
    if (flavor := draft.get("training.model.flavor")) in SEEING:
        key = "validation_prompt" if prompt else "user_prompt_library"
        options.refused(
            key,
            f"{flavor} draws with a reference for each prompt, which no option names: remove it, and add "
            "training.validation with prompts and references to the job",
        )
        return
    for key in _PICTURES:
        options.carry(draft, key, value=_AT_THE_END if (options.value(key) or 0) <= 0 and key == _INTERVAL else None)
    _guidance(options, draft)
    _frames(options, draft)
    if prompt:
        options.carry(draft, "validation_prompt", value=[{"name": "validation", "prompt": prompt}])
    if library:
        draft.put("training.validation.promptsFrom", {"path": places.path(library)})
        options.mapped("user_prompt_library", words="-> training.validation.promptsFrom")
    sizes = [_size(word.strip().lower()) for word in _in_pixels(str(options.value("validation_resolution"))).split(",")]
    if all(sizes):
        options.carry(draft, "validation_resolution", value=sizes)
    else:
        options.refused("validation_resolution", "has to be pixels, such as 1024 or 1024x768, separated by commas")


def _guidance(options: Options, draft: Draft) -> None:
    """What the model is told; of a model that is told none the scale of two passes, which SimpleTuner makes above 1 alone."""
    scale = options.value("validation_guidance")
    is_told = family_of(options, draft).published.has_guidance
    if is_told or scale > 1:
        options.carry(draft, "validation_guidance")
    else:
        options.carry(draft, "validation_guidance", value=0)
    skipped = "validation_guidance_skip_layers"
    if scale > 1 and options.raw(skipped) not in (None, "", [], "None"):
        options.refused(skipped, "layers are not skipped")
    options.ignored(skipped, "SimpleTuner itself skips layers only where guidance is two passes, above 1")
    if not is_told and "validation_negative_prompt" in options:
        draft.put("training.validation.negativePrompt", options.value("validation_negative_prompt"))
        options.mapped("validation_negative_prompt", words="-> training.validation.negativePrompt")


def _frames(options: Options, draft: Draft) -> None:
    """Of each video: 1 more than a multiple of a latent's, as diffusers' pipeline makes them."""
    grid, key = family_of(options, draft).grid, "validation_num_video_frames"
    if grid.frames == 1:
        options.ignored(key, "belongs to another model family")
        return
    wanted = min(options.value(key) or _FRAMES, _FRAMES)
    options.carry(draft, key, value=wanted // grid.frames * grid.frames + 1)


def _in_pixels(sizes: str) -> str:
    """SimpleTuner takes one small number for megapixels: 1 is 1024 pixels, others thousands of them, by eights."""
    small = re.fullmatch(r"\s*([1-9][0-9]?|1[01][0-9]|12[0-7])(?:\.[0-9]*)?\s*", sizes)
    return sizes if small is None else "1024" if small[1] == "1" else str(int(small[1]) * 1000 // 8 * 8)


def _size(word: str) -> str:
    """WIDTHxHEIGHT; "" where it is none."""
    both = re.fullmatch(r"([0-9]{2,5})(?:x([0-9]{2,5}))?", word)
    return f"{both[1]}x{both[2] or both[1]}" if both else ""


def _trackers(options: Options, draft: Draft, places: Places) -> None:
    names = [name.strip().lower() for name in (options.value("report_to") or "none").split(",")]
    wanted = [name for name in names if name != "none"]
    unknown = [name for name in wanted if name not in _TRACKERS]
    if unknown:
        options.refused("report_to", f"{', '.join(unknown)} is not here: use tensorboard, wandb or none")
        return
    entries = []
    for name in wanted:
        project, run = options.value("tracker_project_name"), options.value("tracker_run_name")
        entry = {"name": name, "type": _TRACKERS[name], "project": project, "run": run}
        if name == "wandb":
            secret = f"{places.job}-wandb"
            entry["secretRef"] = {"name": secret}
            places.report.task(f"kubectl create secret generic {secret} --from-literal=WANDB_API_KEY=...")
        entries.append(entry)
    if entries:
        options.carry(draft, "report_to", value=entries)
    options.ignored("report_to", "none")
    for key in ("tracker_project_name", "tracker_run_name"):
        if entries:
            options.mapped(key, words=f"-> training.tracking: {options.value(key)}")
        options.ignored(key, "report_to names no tracker")


def _hub(options: Options, draft: Draft, places: Places) -> None:
    if not options.value("push_to_hub"):
        for key in ("push_to_hub", "hub_model_id", "push_checkpoints_to_hub", "model_card_private"):
            options.ignored(key, "push_to_hub is not set")
        return
    repository = options.value("hub_model_id")
    if repository is None:
        options.refused("hub_model_id", "is missing, and push_to_hub needs it")
        return
    secret = f"{places.job}-hub"
    hub = {
        "repo": repository,
        "private": options.value("model_card_private"),
        "tokenSecretRef": {"name": secret, "key": "token"},
    }
    options.carry(draft, "push_to_hub", value=[{"name": "hub", "hub": hub}])
    owner = "" if "/" in repository else ", without an owner: of the account that the token belongs to"
    options.mapped("hub_model_id", words=f"-> training.publish.hub.repo{owner}")
    if options.value("push_checkpoints_to_hub"):
        differs = "the finished model alone is pushed; training.checkpoint.upload sends checkpoints to a bucket"
        options.mapped("push_checkpoints_to_hub", words="-> training.publish", differs=differs)
    options.ignored("push_checkpoints_to_hub", "false")
    options.mapped("model_card_private", words=f"-> training.publish.hub.private: {str(hub['private']).lower()}")
    places.report.task(f"kubectl create secret generic {secret} --from-literal=token=...   # may write to {repository}")
