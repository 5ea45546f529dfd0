"""config.env beside config.json: SimpleTuner loads it first, and launches by its variables; its other ones do nothing.

Only `simpletuner train` is meant: what a web interface starts has the options of config.json alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oarlock_import import env_file
from oarlock_import.read import Found, text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NAME = "config.env"
_LAUNCHES = ("accelerate_config", "accelerate_extra_args", "num_processes", "num_machines", "dynamo_backend")
_REST = "beside config.json SimpleTuner reads from this file what it launches with, and nothing else"


def merged(options: Found, config: Path, names: Mapping[str, Any]) -> Found:
    """The options with those for the launch from the config.env files beside the configuration, which outrank its own.

    `names` are the known options. SimpleTuner loads config/config.env first, then config/NAME/config.env.
    """
    folder = config.resolve().parent
    base = folder.parent if folder.parent.name == "config" else folder
    content, elsewhere, lines = dict(options.content), dict(options.elsewhere), dict(options.lines)
    notes = list(options.notes)
    for place in dict.fromkeys((base / NAME, folder / NAME)):
        if not place.is_file():
            continue
        source = f"{place.parent.name}/{NAME}"
        found, stand = env_file.parse(text(place), file=str(place), names=names)
        for key in _LAUNCHES:
            if not found.get(key):
                continue
            if key in options.content and key not in elsewhere:
                notes.append((options.name, key, f"{source} outranks it, which SimpleTuner launches by"))
            content[key], elsewhere[key], lines["", key] = found[key], source, stand[key]
        notes.append((source, "its other variables", _REST))
    return replace(options, content=content, elsewhere=elsewhere, lines=lines, notes=tuple(notes))
