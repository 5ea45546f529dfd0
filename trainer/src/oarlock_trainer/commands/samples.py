"""`oarlock-trainer make-tiny-flux` and `make-photographs`: something to train, and to train on, for tests and demos."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from oarlock_api.contract.exit_codes import ExitCode

if TYPE_CHECKING:
    import argparse


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Both commands with their arguments."""
    tiny_flux = commands.add_parser(
        "make-tiny-flux",
        help="write a FLUX.1 model with tiny random weights, for tests and demos",
        description="Write a complete diffusers directory of FLUX.1's architecture, a few megabytes large.",
    )
    tiny_flux.set_defaults(run=_make_tiny_flux)
    photographs = commands.add_parser(
        "make-photographs",
        help="write a small set of photographs with captions, for tests and demos",
        description="Write real photographs, cut to several aspects, each with its caption in a text file beside it.",
    )
    photographs.set_defaults(run=_make_photographs)
    for parser in (tiny_flux, photographs):
        parser.add_argument("directory", type=Path, metavar="DIR")


def _make_tiny_flux(options: argparse.Namespace) -> int:
    from oarlock_trainer.ranks import preload  # noqa: PLC0415 - the agent's start does without

    preload.settle_environment()  # torch and its friends would look for a GPU, and say that there is none
    from oarlock_trainer.models.flux import tiny  # noqa: PLC0415 - brings torch

    tiny.write(options.directory)
    return _wrote("a FLUX.1 model with tiny random weights", options.directory)


def _make_photographs(options: argparse.Namespace) -> int:
    from oarlock_trainer.data import photographs  # noqa: PLC0415 - brings Pillow

    names = photographs.write(options.directory)
    return _wrote(f"{len(names)} photographs, each with a caption,", options.directory)


def _wrote(what: str, directory: Path) -> int:
    sys.stdout.write(f"wrote {what} to {directory}\n")
    return ExitCode.DONE
