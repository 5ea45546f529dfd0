"""Reading SimpleTuner's files: JSON, TOML, config.env and accelerate's YAML.

Every failure is a ConfigurationError that names the file, and the line.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from oarlock_api import manifest
from oarlock_import import env_file, lines
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oarlock_import.lines import Lines

_GAP = re.compile(r"^\s*\.\.\.,?$", re.MULTILINE)
"""As documentation shows a part of a file."""


@dataclass(frozen=True, slots=True)
class Found:
    """A file that one option names, what it is called in the report, and the lines of its keys."""

    name: str
    content: Any
    lines: Lines = field(default_factory=dict)


def options_file(path: Path, names: Mapping[str, Any]) -> Found:
    """Options of config.json, config.toml or config.env by their names, dashes and case aside; `names` are the known ones."""
    if path.suffix == ".env" or path.name.startswith("config.env"):
        found, stand = env_file.parse(text(path), file=str(path), names=names)
        return Found(path.name, found, {("", key): line for key, line in stand.items()})
    file = structured(path)
    content = file.content
    if not isinstance(content, dict):
        raise ConfigurationError(f"{path}: this is no object of options; name config.json, config.toml or config.env")
    options: dict[str, Any] = {}
    for key, value in content.items():
        name = key.lstrip("-").replace("-", "_")
        if name in options and options[name] != value:
            raise ConfigurationError(f"{path}: {name} stands twice with different values; remove one")
        options[name] = value
    return Found(path.name, options, {(group, key.replace("-", "_")): n for (group, key), n in file.lines.items()})


def structured(path: Path) -> Found:
    """Content of a JSON, TOML or YAML file, by its suffix; what has none of these is JSON."""
    content = text(path)
    suffix = path.suffix if path.suffix in (".toml", ".yaml", ".yml") else ".json"
    try:
        if suffix == ".toml":
            found = tomllib.loads(content)
        elif suffix == ".json":
            found = json.loads(content, object_pairs_hook=_distinct)
        else:
            found = manifest.load(content)
    except (ValueError, yaml.YAMLError) as error:
        gap = _GAP.search(content)
        line = content.count("\n", 0, gap.end()) + 1 if gap else 0
        why = f"line {line}: ... stands for lines that were left out: write them, or remove it" if gap else error
        raise ConfigurationError(f"{path}: {why}") from error
    return Found(path.name, found, lines.of_text(content, suffix))


def accelerate_place(environ: Mapping[str, str]) -> Path:
    """Where `accelerate config` writes, and `accelerate launch` looks, where nobody names a file."""
    cache = environ.get("HF_HOME") or f"{environ.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
    return Path(cache).expanduser() / "accelerate/default_config.yaml"


def text(path: Path) -> str:
    """Content of a text file."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: cannot be read: {error}") from error


def find(named: str, *, beside: Path) -> Path | None:
    """A file that a configuration names: as it is, or from the folder above the configuration's, or beside it."""
    folder = beside.resolve().parent
    places = (folder.parent / named, folder / named, folder / named.rpartition("/")[2])
    # Path.is_file would raise at a text that is too long for a name, and show it.
    return next((place for place in places if os.path.isfile(place)), None)  # noqa: PTH113


def around(config: Path) -> tuple[Path, ...]:
    """Where relative paths of a configuration may begin: it is config/config.json, config/NAME/config.json, or beside."""
    folder = config.resolve().parent
    return folder.parent, folder.parent.parent, folder


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; a key that stands twice with different values is a mistake."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found and found[key] != value:
            raise ValueError(f"{key} stands twice with different values; remove one")
        found[key] = value
    return found
