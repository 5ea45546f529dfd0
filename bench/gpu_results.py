"""What slices of `make gpu-day` found, as JSON: whole at any moment, however a program ends; damaged files are put aside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read(path: Path) -> dict[str, Any]:
    """What a file holds; nothing where there is none. One that is no JSON object is renamed to NAME.damaged, and told."""
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_bytes())
    except ValueError as error:
        why = str(error)
    else:
        if isinstance(found, dict):
            return found
        why = "it is no object"
    aside = path.with_name(f"{path.name}.damaged")
    path.replace(aside)
    print(f"{path} is damaged ({why}): it is {aside.name} now, and what it held is asked anew", flush=True)
    return {}


def results(path: Path) -> dict[str, Any]:
    """The part `results` of a file that slices share; nothing where there is none."""
    found = read(path).get("results")
    return found if isinstance(found, dict) else {}


def write(path: Path, found: Any) -> None:
    """Replace a file, or make it with its folder."""
    write_text(path, json.dumps(found, indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    """The same of any text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    new.write_text(text)
    new.replace(path)
