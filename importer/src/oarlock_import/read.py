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

_EXAMPLES = "config/examples/"
_GAP = re.compile(r"^\s*\.\.\.,?$", re.MULTILINE)
"""As documentation shows a part of a file."""


@dataclass(frozen=True, slots=True)
class Found:
    """A file that one option names, what it is called in the report, and the lines of its keys."""

    name: str
    content: Any
    lines: Lines = field(default_factory=dict)
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    """Options that another file says -> its name."""
    notes: tuple[tuple[str, str, str], ...] = ()
    """What else was there and changes nothing: file, key, and why."""


def options_file(path: Path, names: Mapping[str, Any]) -> Found:
    """Options of config.json, config.toml or config.env by their names, dashes and case aside; `names` are the known ones."""
    if has_variables(path):
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


def has_variables(path: Path) -> bool:
    """Whether a file is one of a shell's variables."""
    return path.suffix in (".env", ".sh") or path.name.startswith("config.env")


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
    except RecursionError as error:
        raise ConfigurationError(f"{path}: is nested too deeply to be read: write it flatter") from error
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
    """A file that a configuration names: from one of the folders around it, of SimpleTuner's examples, or beside it.

    config/examples/NAME is SimpleTuner's own name for a file in the folder examples of its package.
    """
    named, roots = os.path.expanduser(named), around(beside)  # noqa: PTH111 - no path yet
    places = [root / named for root in roots]
    if named.startswith(_EXAMPLES):
        within = named.removeprefix(_EXAMPLES)
        places += [root / package / within for root in roots for package in ("simpletuner/examples", "examples")]
    places.append(roots[0] / named.rpartition("/")[2])
    # Path.is_file would raise at a text that is too long for a name, and show it.
    return next((place for place in places if os.path.isfile(place)), None)  # noqa: PTH113


def around(config: Path) -> tuple[Path, ...]:
    """Where relative paths of a configuration may begin: its folder, up to three above it, and the one we are called in.

    It is config/config.json, config/NAME/config.json, or simpletuner/examples/NAME/config.json.
    """
    folder = config.resolve().parent
    return folder, folder.parent, folder.parent.parent, folder.parent.parent.parent, Path.cwd()


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; a key that stands twice with different values is a mistake."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found and found[key] != value:
            raise ValueError(f"{key} stands twice with different values; remove one")
        found[key] = value
    return found
