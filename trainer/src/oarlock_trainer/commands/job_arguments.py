"""How commands of `oarlock-trainer` take a job: as the file that the operator writes, or as a TrainingJob's manifest."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable


def add_job(parser: argparse.ArgumentParser) -> None:
    """JOB.JSON or -f JOB.YAML, one of them."""
    either = parser.add_mutually_exclusive_group(required=True)
    either.add_argument("job", type=Path, nargs="?", metavar="JOB.JSON", help="the job file, as the operator writes it")
    either.add_argument(
        "-f", "--filename", type=Path, metavar="JOB.YAML", help="the TrainingJob, as a person writes it"
    )
    _add_path(parser)


def add_manifest(parser: argparse.ArgumentParser) -> None:
    """-f JOB.YAML alone."""
    parser.add_argument("-f", "--filename", type=Path, required=True, metavar="JOB.YAML", help="the TrainingJob")
    _add_path(parser)


def with_job(options: argparse.Namespace, run: Callable[[Path], int]) -> int:
    """Run what takes a job file with the one that was given, or with one made of the manifest; returns its exit code."""
    if options.job:
        return run(options.job)
    from oarlock_trainer.commands import local_manifest  # noqa: PLC0415 - pydantic's models, which a job file's ranks load themselves

    def run_manifest() -> int:
        with local_manifest.written(options.filename, options.path) as job:
            return run(job)

    return with_manifest(run_manifest)


def with_manifest(work: Callable[[], int]) -> int:
    """Do what looks at a manifest's places on this machine, or say why not; returns the exit code."""
    from oarlock_trainer.runtime.errors import TrainingEnd  # noqa: PLC0415 - the agent's start does without

    try:
        return work()
    except TrainingEnd as end:
        sys.stderr.write(f"{end.outside_of_pods}\n")
        return end.code


def _add_path(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--path",
        action="append",
        default=[],
        metavar="POD=HERE",
        help="where a path of JOB.YAML lies on this machine, such as /output=/mnt/nfs; may be given more than once",
    )
