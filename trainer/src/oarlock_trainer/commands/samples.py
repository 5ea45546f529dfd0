"""`oarlock-trainer make-tiny-FAMILY` and `make-photographs`: something to train, and to train on, for tests and demos."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_trainer.models.families import FAMILIES

if TYPE_CHECKING:
    import argparse

    from oarlock_api.weights import ModelFamily


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The commands with their arguments."""
    models = []
    for key, family in FAMILIES.items():
        models.append(
            parser := commands.add_parser(
                f"make-tiny-{family.slug}",
                help=f"write a {family.name} model with tiny random weights, for tests and demos",
                description=f"Write a complete diffusers directory of {family.name}'s architecture, a few megabytes large.",
            )
        )
        parser.set_defaults(run=partial(_make_tiny, key))
    photographs = commands.add_parser(
        "make-photographs",
        help="write a small set of photographs with captions, for tests and demos",
        description="Write real photographs, cut to several aspects, each with its caption in a text file beside it.",
    )
    photographs.set_defaults(run=_make_photographs)
    for parser in (*models, photographs):
        parser.add_argument("directory", type=Path, metavar="DIR")


def _make_tiny(key: ModelFamily, options: argparse.Namespace) -> int:
    from oarlock_trainer.ranks import preload  # noqa: PLC0415 - the agent's start does without

    preload.settle_environment()  # torch and its friends would look for a GPU, and say that there is none
    from oarlock_trainer.models.family_codes import CODES  # noqa: PLC0415 - brings torch

    CODES[key].write_tiny(options.directory)
    return _wrote(f"a {FAMILIES[key].name} model with tiny random weights", options.directory)


def _make_photographs(options: argparse.Namespace) -> int:
    from oarlock_trainer.data import photographs  # noqa: PLC0415 - brings Pillow

    names = photographs.write(options.directory)
    return _wrote(f"{len(names)} photographs, each with a caption,", options.directory)


def _wrote(what: str, directory: Path) -> int:
    sys.stdout.write(f"wrote {what} to {directory}\n")
    return ExitCode.DONE
