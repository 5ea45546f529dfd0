"""How `oarlock-trainer checkpoints` takes its arguments. What it does is in checkpoints.py."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

DAMAGED = 1
"""Exit code for a checkpoint that is not what was written."""


def add(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], *, run: Callable[[argparse.Namespace], int]
) -> None:
    """Add the command with its three parts; `run` does the one that `options.part` names."""
    parser = commands.add_parser(
        "checkpoints",
        help="list, verify or export the checkpoints of a job",
        description="Look at the checkpoints below a job's output directory, while it runs or later.",
    )
    parts = parser.add_subparsers(title="parts", required=True, metavar="PART")
    listing = parts.add_parser("ls", help="list them, newest first, with the reason where one is not valid")
    listing.add_argument("--json", action="store_true", help="as JSON")
    verifying = parts.add_parser(
        "verify",
        help="compare one with its hashes",
        description=f"Exit code 0, or {DAMAGED} with the files that are damaged.",
    )
    exporting = parts.add_parser(
        "export",
        help="write the model of one in diffusers' format",
        description="Write what the job itself writes at its end: a diffusers directory, or of a LoRA job its adapters.",
    )
    exporting.add_argument("--model", type=Path, metavar="BASE", help="the model that was trained; LoRA needs none")
    exporting.add_argument("--to", type=Path, required=True, metavar="DIR", help="directory to make")
    for name, part in parts.choices.items():
        part.add_argument("directory", type=Path, metavar="DIR", help="the output directory, or its checkpoints")
        part.set_defaults(run=run, part=name)
    verifying.add_argument("step", type=int, nargs="?", metavar="STEP", help="the one after so many steps")
    exporting.add_argument("--step", type=int, metavar="STEP", help="the one after so many steps")
