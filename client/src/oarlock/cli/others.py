"""Verbs that another program does, where it is installed; and what needs no cluster."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from oarlock.cli.output import table
from oarlock.cli.verb import app
from oarlock.errors import NotNowError
from oarlock.exit_codes import ExitCode

TRAINER = "oarlock-trainer"
_PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
Rest = Annotated[list[str] | None, typer.Argument(metavar="ARGUMENTS")]


@app.command("plan", context_settings=_PASSED_ON)
def plan(rest: Rest = None) -> None:
    """Tell what a job would do with its data and GPUs: `oarlock-trainer plan`, where the trainer is installed."""
    _pass_on("plan", rest, "oarlock-trainer")


@app.command("import", context_settings=_PASSED_ON)
def import_(rest: Rest = None) -> None:
    """Make a TrainingJob of SimpleTuner's configuration: `oarlock-trainer import-simpletuner`, where it is installed."""
    _pass_on("import-simpletuner", rest, "'oarlock-trainer[import]'")


@app.command("exit-codes")
def exit_codes() -> None:
    """List the exit codes and what they mean."""
    table(["CODE", "MEANS"], [[int(code), code.meaning] for code in ExitCode])


def _pass_on(command: str, rest: list[str] | None, distribution: str) -> None:
    # That of this command's own environment, which need not be on PATH.
    program = shutil.which(TRAINER, path=str(Path(sys.executable).parent)) or shutil.which(TRAINER)
    if program is None:
        raise NotNowError(f"{TRAINER} is not installed here: pip install {distribution}")
    raise typer.Exit(subprocess.run([program, command, *(rest or ())], check=False).returncode)
