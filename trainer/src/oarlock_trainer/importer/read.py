"""Reading SimpleTuner's files: JSON, TOML, config.env and accelerate's YAML.

Every failure is a ConfigurationError that names the file.
"""

from __future__ import annotations

import json
import os
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from oarlock_api import manifest
from oarlock_trainer.errors import ConfigurationError
from oarlock_trainer.importer import env_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Found:
    """A file that one option names, and what it is called in the report."""

    name: str
    content: Any


def options_file(path: Path, names: Mapping[str, Any]) -> dict[str, Any]:
    """Options of config.json, config.toml or config.env by their names, dashes and case aside; `names` are the known ones."""
    if path.suffix == ".env" or path.name.startswith("config.env"):
        return env_file.parse(text(path), file=str(path), names=names)
    content = structured(path)
    if not isinstance(content, dict):
        raise ConfigurationError(f"{path}: this is no object of options; name config.json, config.toml or config.env")
    found: dict[str, Any] = {}
    for key, value in content.items():
        name = key.lstrip("-").replace("-", "_")
        if name in found and found[name] != value:
            raise ConfigurationError(f"{path}: {name} stands twice with different values; remove one")
        found[name] = value
    return found


def structured(path: Path) -> Any:
    """Content of a JSON, TOML or YAML file, by its suffix."""
    content = text(path)
    try:
        if path.suffix == ".toml":
            return tomllib.loads(content)
        if path.suffix in (".yaml", ".yml"):
            return manifest.load(content)
        return json.loads(content, object_pairs_hook=_distinct)
    except (ValueError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{path}: {error}") from error


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


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; a key that stands twice with different values is a mistake."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found and found[key] != value:
            raise ValueError(f"{key} stands twice with different values; remove one")
        found[key] = value
    return found
