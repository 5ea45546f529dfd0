"""Verbs: functions that take a Client first. Every one gets kubectl's own options for which cluster and namespace."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oarlock.cli.output import note

if TYPE_CHECKING:
    from oarlock.client import Client


class PipeClosedError(Exception):
    """Whoever read the output has gone."""


app = typer.Typer(
    name="oarlock",
    help="TrainingJobs on a Kubernetes cluster: start, watch, understand and end them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def complete_job(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of jobs, for the shell; none where no cluster answers at once."""
    return _names(ctx, incomplete, lambda client: [row.name for row in client.ls()])


def complete_node(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of nodes that have GPUs or are cordoned."""
    return _names(ctx, incomplete, lambda client: [row.name for row in client.nodes()])


def complete_namespace(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of namespaces, for who may list them."""
    return _names(ctx, incomplete, lambda client: client.namespaces())


def _names(ctx: typer.Context, incomplete: str, ask: Callable[[Client], list[str]]) -> list[str]:
    from oarlock.client import Client  # noqa: PLC0415
    from oarlock.errors import OarlockError  # noqa: PLC0415

    given = {name: ctx.params.get(name) for name in ("context", "kubeconfig", "namespace")}
    try:
        return [name for name in ask(Client(**given)) if name.startswith(incomplete)]
    except OarlockError:
        return []


Name = Annotated[str, typer.Argument(metavar="JOB", help="The job's name.", autocompletion=complete_job)]
OptionalName = Annotated[
    str | None, typer.Argument(metavar="[JOB]", help="The job's name.", autocompletion=complete_job)
]
Timeout = Annotated[
    float | None, typer.Option("--timeout", metavar="SECONDS", help="Wait so long at most; exit code 2.")
]
Output = Annotated[
    str, typer.Option("--output", "-o", metavar="FORMAT", help="table, wide, json, yaml, jsonl or name.")
]
_ACCESS: dict[str, Any] = {
    "namespace": Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NAME",
            help="Namespace (default: the context's).",
            autocompletion=complete_namespace,
        ),
    ],
    "context": Annotated[str | None, typer.Option("--context", metavar="NAME", help="Context of the kubeconfig.")],
    "kubeconfig": Annotated[
        str | None, typer.Option("--kubeconfig", metavar="FILE", help="Kubeconfig (default: as kubectl finds it).")
    ],
}


class _Notes(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        note(f"-- {record.getMessage()}")


def _note_warnings() -> None:
    """Have what the SDK warns of, such as an API server that is asked again, stand beside the answer."""
    logger = logging.getLogger("oarlock")
    if not logger.handlers:
        logger.addHandler(_Notes())


def verb(
    name: str | None = None, *, without_cluster: Callable[[Mapping[str, Any]], bool] = lambda _: False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function `f(client, ...)` a verb, by its own name or another. Its docstring is the help.

    `without_cluster`: whether these parameters need no cluster; then the client is None.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        own = list(inspect.signature(function).parameters.values())[1:]
        options = [
            inspect.Parameter(each, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
            for each, annotation in _ACCESS.items()
        ]

        def run(**given: Any) -> None:
            from oarlock.client import Client  # noqa: PLC0415 - --help and --version ask no cluster

            _note_warnings()
            access = {each: given.pop(each) for each in _ACCESS}
            client = None if without_cluster(given) else Client(**access)
            try:
                function(client, **given)
            except BrokenPipeError as error:  # which typer would end with 1
                raise PipeClosedError from error

        parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own] + options
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        run.__doc__ = function.__doc__
        app.command(name or function.__name__.replace("_", "-"))(run)
        return function

    return register
