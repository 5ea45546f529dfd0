"""config.env: NAME=value lines of a shell, with names that are mostly the options' own in capitals."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oarlock_import.shell import computed, logical_lines
from oarlock_import.simpletuner import VARIABLES
from oarlock_import.values import Computed, Part, Unread, arguments
from oarlock_trainer.runtime.errors import ConfigurationError

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
    "MIN_SNR_GAMMA": "snr_gamma",
    "DELETE_ERRORED_IMAGES": "delete_problematic_images",
    "DELETE_SMALL_IMAGES": "delete_unwanted_images",
    "TRAINING_NUM_PROCESSES": "num_processes",
    "TRAINING_NUM_MACHINES": "num_machines",
    "TRAINING_DYNAMO_BACKEND": "dynamo_backend",
    "TRAINER_DYNAMO_BACKEND": "dynamo_backend",
}
"""Variables whose option is not their own name in small letters."""
_EXTRA = ("TRAINER_EXTRA_ARGS", "DEBUG_EXTRA_ARGS")
"""Variables with options of a command line."""
_FAMILIES = {"FLUX": "flux", "STABLE_DIFFUSION_3": "sd3"}
"""Older than model_family: each family had a switch of its own."""
_WORDS = {"if", "then", "else", "elif", "fi", "for", "while", "do", "done", "case", "esac", "source", ".", "function"}
"""Where a shell does more than to set a variable."""
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
_COMMAND = re.compile(r"(?<!\\)(?:\$\(|`)")
"""Where a shell would run a command."""


@dataclass(frozen=True, slots=True)
class _Variable:
    value: str
    line: int


def parse(content: str, *, file: str, names: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, int]]:
    """Options by name, and the line of each; a variable that is no option (`names` has them all) keeps its own spelling.

    Variables of earlier lines are put in where $NAME or ${NAME} stands for them; others are left, and commands marked,
    for the reading of values to refuse. Raises ConfigurationError where a line is not understood.
    """
    variables: dict[str, _Variable] = {}
    used: set[str] = set()
    for number, line in logical_lines(content):
        name, value, appended = _line(line, variables, used, file=file, number=number)
        if name:
            before = variables[name].value if appended and name in variables else ""
            whole = f"{before} {value}" if before else value
            is_computed = any(isinstance(part, Computed) for part in (before, value))
            variables[name] = _Variable(Computed(whole) if is_computed else whole, number)
    found: dict[str, Any] = {}
    lines: dict[str, int] = {}
    for name, variable in variables.items():
        given = _options(name, variable, file=file, names=names)
        if "model_family" in given and found.get("model_family", given["model_family"]) != given["model_family"]:
            given = {name.lower(): variable.value}  # a second family: which one is meant, nobody can tell
        if name in used and name in given and name not in names:
            given[name] = Part(variable.value)
        found |= given
        lines |= dict.fromkeys(given, variable.line)
    return found, lines


def _options(name: str, variable: _Variable, *, file: str, names: Mapping[str, Any]) -> dict[str, Any]:
    """The options that one variable sets."""
    is_on = variable.value.lower() in ("true", "1")
    if name in _EXTRA:
        try:
            return arguments(variable.value)
        except ValueError as error:
            raise ConfigurationError(f"{file}, line {variable.line}: {name}: {error}") from error
    if name == "USE_BITFIT":
        return {"layer_freeze_strategy": "bitfit" if is_on else "none"}
    if name in _FAMILIES and is_on:
        return {"model_family": _FAMILIES[name]}
    option = NAMES.get(name, name.lower())
    is_read = name in VARIABLES or isinstance(variable.value, Computed)
    return {option if option in names else name: variable.value if is_read else Unread(variable.value)}


def _line(
    line: str, variables: Mapping[str, _Variable], used: set[str], *, file: str, number: int
) -> tuple[str, str, bool]:
    """Name, value and whether it is appended; an empty name for a line without any. Notes in `used` what it is made of."""
    line = line.strip().removeprefix("export ").strip()
    if not line:
        return "", "", False
    first = re.split(r"[\s;]", line, maxsplit=1)[0]
    if first in _WORDS:
        raise ConfigurationError(
            f"{file}, line {number}: {first}: no shell is run here; write the lines that it comes to"
        )
    name, equals, value = line.partition("=")
    try:
        words = shlex.split(value)
    except ValueError as error:
        raise ConfigurationError(f"{file}, line {number}: {error}") from error
    if not equals or " " in name.strip():
        raise ConfigurationError(f"{file}, line {number}: this is no NAME=value; options stand one in a line")

    def known(match: re.Match[str]) -> str:
        variable = match[1] or match[2]
        used.add(variable)
        return variables[variable].value if variable in variables else f"${{{variable}}}"

    joined = " ".join(words)
    # A shell puts nothing in between single quotes.
    if not value.lstrip().startswith("'"):
        joined = _VARIABLE.sub(known, joined)
        joined = computed(joined, {one: variables[one].value for one in variables}, used)
        joined = Computed(joined) if _COMMAND.search(joined) else joined
    return name.strip().removesuffix("+"), joined, name.strip().endswith("+")
