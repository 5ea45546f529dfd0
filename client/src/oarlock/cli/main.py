"""The commands `oarlock` and `kubectl oarlock`: all verbs, and what an error becomes: one line, and its exit code."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import Annotated

import typer
from typer._click import exceptions as click

from oarlock.cli import acting, logs, others, reading, report, web, why
from oarlock.cli.verb import PipeClosedError, app
from oarlock.errors import OarlockError
from oarlock.exit_codes import ExitCode
from oarlock.terminal import escaped

__all__ = ["acting", "app", "logs", "main", "others", "reading", "report", "web", "why"]

app.registered_commands.sort(key=lambda verb: str(verb.name))


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer's callback gets the flag's value
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415 - 20 ms that no verb pays

        typer.echo(f"oarlock {version('oarlock')}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """TrainingJobs on a Kubernetes cluster: start, watch, understand and end them."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and end the process with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a name in Chinese is no reason to fail where the locale is C
    try:
        code = run(arguments)
        sys.stdout.flush()
    except (BrokenPipeError, PipeClosedError):
        # What is still to be written would raise again when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = ExitCode.PIPE_CLOSED
    sys.exit(int(code))


def run(arguments: list[str] | None = None) -> int:
    """Run the command line. Returns its exit code; raises PipeClosedError."""
    try:
        ended = app(arguments, prog_name="oarlock", standalone_mode=False)
    except OarlockError as error:
        return _failed(str(error), error.code)
    except click.NoArgsIsHelpError as error:
        typer.echo(error.format_message())
        return ExitCode.USAGE
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "oarlock"
        return _failed(f"{error.format_message()} See `{command} --help`.", ExitCode.USAGE)
    except (KeyboardInterrupt, typer.Abort):
        return ExitCode.INTERRUPTED
    return ended if isinstance(ended, int) else ExitCode.DONE


def _failed(message: str, code: ExitCode) -> ExitCode:
    sys.stdout.flush()
    sys.stderr.write(f"oarlock: {escaped(' '.join(message.split()))}\n")
    return code
