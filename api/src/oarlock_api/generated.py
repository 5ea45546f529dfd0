"""Files in the repository that are made from the models: write them, or tell that they are out of date."""

from __future__ import annotations

import argparse
import difflib
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]


def write_or_check(*, module: str, path: Path, content: str, arguments: list[str] | None = None) -> int:
    """Command line of a generator: writes `path`, or with --check compares; returns the exit status."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=f"Write {path.name} from the models.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the file is out of date")
    parser.add_argument("--output", type=Path, default=path, help="the file (default: %(default)s)")
    options = parser.parse_args(arguments)
    target: Path = options.output
    if not options.check:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
        return 0
    present = target.read_text() if target.exists() else ""
    if present == content:
        return 0
    changes = list(difflib.unified_diff(present.splitlines(), content.splitlines(), "committed", "models", lineterm=""))
    shown = "\n".join(changes[:40])
    sys.stderr.write(
        f"{target} is out of date: the models say something else. Run `python -m {module}` and commit the result.\n"
        f"{shown}\n"
    )
    return 1
