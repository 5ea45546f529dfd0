"""`oarlock-trainer import-simpletuner`: files in, manifest and report out."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_import import launch_env, read, write
from oarlock_import.here import plan_command
from oarlock_import.importing import OPTIONS, Inputs, build
from oarlock_import.read import Found
from oarlock_import.values import as_json
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    import argparse

    from oarlock_api.trainingjob import TrainingJob


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of `oarlock-trainer`."""
    parser = commands.add_parser(
        "import-simpletuner",
        help="turn SimpleTuner's configuration into a TrainingJob",
        description="Write the manifest of a job that trains as SimpleTuner would with this configuration, and say on "
        "standard error what became of each option: mapped, ignored or refused. Files that the configuration names are "
        f"found beside it. Exit code {ExitCode.CONFIGURATION}, and no manifest, if anything is refused.",
    )
    parser.add_argument("config", type=Path, metavar="CONFIG", help="config.json, config.toml or config.env")
    parser.add_argument("--datasets", type=Path, metavar="FILE", help="multidatabackend.json")
    parser.add_argument("--accelerate", type=Path, metavar="FILE", help="accelerate's YAML")
    parser.add_argument("--webhooks", type=Path, metavar="FILE", help="webhooks.json")
    parser.add_argument("--name", help="name of the job (default: that of the output directory)")
    parser.add_argument("--claim", default="training-output", help="claim for the output (default: %(default)s)")
    parser.add_argument(
        "--working-directory",
        default="/output",
        metavar="DIR",
        help="where relative paths begin in the pods (default: %(default)s)",
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="where the manifest goes (default: stdout)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Import, and return the exit code: 0, or CONFIGURATION where anything was refused or could not be read."""
    try:
        job, report = build(inputs_of(arguments))
        sys.stderr.write(report.text())
        if job is None:
            return ExitCode.CONFIGURATION
        text = write.manifest(job)
        if arguments.output is None:
            sys.stdout.write(text)
        else:
            arguments.output.write_text(text, encoding="utf-8")
        sys.stderr.write(f"next: {_next(job, arguments)}\n")
    except (ConfigurationError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return ExitCode.CONFIGURATION
    return ExitCode.DONE


def _next(job: TrainingJob, arguments: argparse.Namespace) -> str:
    """The command that tells more of the job, with its data at hand."""
    return plan_command(
        job, manifest=arguments.output, config=arguments.config, working_directory=arguments.working_directory
    )


def inputs_of(arguments: argparse.Namespace) -> Inputs:
    """What the command's arguments name. Raises ConfigurationError or OSError for what cannot be read."""
    config: Path = arguments.config
    options = read.options_file(config, OPTIONS)
    if not read.has_variables(config):
        options = launch_env.merged(options, config, OPTIONS)

    def companion(given: Path | None, key: str) -> Found | None:
        try:
            return _companion(given, options.content.get(key), beside=config)
        except ValueError as error:
            # Never the value itself: it may hold keys of a bucket.
            raise ConfigurationError(f"{config}: {key} {error}; correct it, or name a file") from error

    def text(named: str) -> str:
        path = read.find(named, beside=config)
        if path is None:
            raise FileNotFoundError(f"{named} is not found beside {config}")
        return read.text(path)

    return Inputs(
        options=options,
        datasets=companion(arguments.datasets, "data_backend_config") or _default_datasets(options, config),
        accelerate=companion(arguments.accelerate, "accelerate_config") or _default_accelerate(options),
        accelerate_place=str(read.accelerate_place(os.environ)),
        webhooks=companion(arguments.webhooks, "webhook_config"),
        name=arguments.name,
        claim=arguments.claim,
        working_directory=arguments.working_directory,
        find=text,
        has_folder=lambda named: any(os.path.isdir(place / named) for place in read.around(config)),  # noqa: PTH112
    )


def _companion(given: Path | None, named: Any, *, beside: Path) -> Found | None:
    """A file that was passed, or that an option names, or the option's own inline JSON; None if there is none.

    Raises ValueError where text that begins as JSON is none.
    """
    if given is None and isinstance(named, str) and named:
        inline = as_json(named)
        if not isinstance(inline, str):
            return Found("inline", inline)
        given = read.find(named, beside=beside)
    elif given is None and isinstance(named, dict | list):
        return Found("inline", named)
    return read.structured(given) if given is not None else None


def _default_datasets(options: Found, config: Path) -> Found | None:
    """The file beside the configuration that SimpleTuner takes where no option names one; None where one does."""
    place = config.resolve().parent / "multidatabackend.json"
    return None if options.content.get("data_backend_config") or not place.is_file() else read.structured(place)


def _default_accelerate(options: Found) -> Found | None:
    """The file that accelerate itself would find, called by its whole path; None where an option names one."""
    place = read.accelerate_place(os.environ)
    if options.content.get("accelerate_config") or not place.is_file():
        return None
    return replace(read.structured(place), name=str(place))
