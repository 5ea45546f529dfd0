"""config.env: NAME=value lines of a shell, with names that are mostly the options' own in capitals."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

from oarlock_trainer.errors import ConfigurationError
from oarlock_trainer.importer.values import arguments

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMES = {
    "RESUME_CHECKPOINT": "resume_from_checkpoint",
    "DATALOADER_CONFIG": "data_backend_config",
    "TRAINING_SEED": "seed",
    "ACCELERATE_CONFIG_PATH": "accelerate_config",
    "MINIMUM_RESOLUTION": "minimum_image_size",
    "PUSH_CHECKPOINTS": "push_checkpoints_to_hub",
    "MAX_NUM_STEPS": "max_train_steps",
    "NUM_EPOCHS": "num_train_epochs",
    "CHECKPOINTING_LIMIT": "checkpoints_total_limit",
    "HUB_MODEL_NAME": "hub_model_id",
    "MODEL_NAME": "pretrained_model_name_or_path",
    "USE_XFORMERS": "enable_xformers_memory_efficient_attention",
    "USE_GRADIENT_CHECKPOINTING": "gradient_checkpointing",
    "LR_SCHEDULE": "lr_scheduler",
    "TRAINING_NUM_PROCESSES": "num_processes",
    "TRAINING_NUM_MACHINES": "num_machines",
    "TRAINING_DYNAMO_BACKEND": "dynamo_backend",
    "TRAINER_DYNAMO_BACKEND": "dynamo_backend",
}
"""Variables whose option is not their own name in small letters."""
_EXTRA = "TRAINER_EXTRA_ARGS"


def parse(content: str, *, file: str, names: Mapping[str, Any]) -> dict[str, Any]:
    """Options by name; a variable that is no option (`names` has them all) keeps its own spelling.

    Raises ConfigurationError where a line is not understood.
    """
    variables: dict[str, str] = {}
    for number, line in enumerate(content.splitlines(), start=1):
        name, value, appended = _line(line, file=file, number=number)
        if name:
            variables[name] = f"{variables[name]} {value}" if appended and name in variables else value
    found: dict[str, Any] = {}
    for name, value in variables.items():
        if name == _EXTRA:
            found |= _arguments(value, file)
        elif name == "USE_BITFIT":
            found["layer_freeze_strategy"] = "bitfit" if value.lower() in ("true", "1") else "none"
        else:
            option = NAMES.get(name, name.lower())
            found[option if option in names else name] = value
    return found


def _line(line: str, *, file: str, number: int) -> tuple[str, str, bool]:
    """Name, value and whether it is appended; an empty name for a line without any."""
    line = line.strip().removeprefix("export ").strip()
    if not line or line.startswith("#"):
        return "", "", False
    name, equals, value = line.partition("=")
    try:
        words = shlex.split(value, comments=True)
    except ValueError as error:
        raise ConfigurationError(f"{file}, line {number}: {error}") from error
    if not equals or " " in name.strip():
        raise ConfigurationError(f"{file}, line {number}: this is no NAME=value")
    # Other variables of the shell are not known here; ${NAME} is what the reading of values refuses.
    joined = re.sub(r"\$(?=[A-Za-z_])(\w+)", r"${\1}", " ".join(words))
    return name.strip().removesuffix("+"), joined, name.strip().endswith("+")


def _arguments(text: str, file: str) -> dict[str, Any]:
    try:
        return arguments(text)
    except ValueError as error:
        raise ConfigurationError(f"{file}: {_EXTRA}: {error}") from error
