"""How `oarlock-trainer checkpoints` takes its arguments; what it does is imported when it does it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

DAMAGED = 1
"""Exit code for a checkpoint that is not what was written."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its three parts."""
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
        part.set_defaults(run=_run, part=name)
    verifying.add_argument("step", type=int, nargs="?", metavar="STEP", help="the one after so many steps")
    exporting.add_argument("--step", type=int, metavar="STEP", help="the one after so many steps")


def _run(options: argparse.Namespace) -> int:
    from oarlock_trainer.commands import checkpoints  # noqa: PLC0415

    return checkpoints.run(options)
