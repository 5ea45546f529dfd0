"""The verbs that act: submit, suspend, resume, resize, save, drill, stacks, stop, delete, uncordon; and wait."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from oarlock.cli.logs import print_logs
from oarlock.cli.output import UsageError, duration, note, say, write
from oarlock.cli.verb import Name, Timeout, complete_node, verb
from oarlock.errors import JobNotRunningError, NotFoundError, RefusedError
from oarlock.job import GOES_ON, STAYS_RESIZED, STAYS_STOPPED
from oarlock.rows import JobRow
from oarlock_api.manifest import load_all

if TYPE_CHECKING:
    from oarlock.client import Client


@verb()
def submit(
    client: "Client",
    *,
    file: Annotated[str, typer.Option("--file", "-f", metavar="FILE", help="The manifest; - is standard input.")],
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end, as `oarlock wait`.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Print the logs as `oarlock logs -f`, and end as `oarlock wait`.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Have the API server check it, print it, make nothing.")
    ] = False,
    timeout: Timeout = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FORMAT", help="Of --dry-run: yaml or json.")
    ] = "yaml",
) -> None:
    """Make a job, or change the one of its name."""
    if output not in {"yaml", "json"}:
        raise UsageError(f"-o {output} is no format of submit: yaml or json")
    if follow and timeout is not None:
        raise UsageError("--timeout goes with --wait: logs are followed to the end")
    jobs = _manifests(file)
    if (wait or follow) and len(jobs) > 1:
        raise UsageError(f"--wait and --follow are for one job, and {file} has {len(jobs)}")
    for manifest in jobs:
        job = client.submit(manifest, dry_run=dry_run)
        if dry_run:
            write(manifest, output)
            continue
        say(f"{job.namespace}/{job.name} is submitted")
        sys.stdout.flush()
        if follow:
            print_logs(job.logs(follow=True))
        if wait or follow:
            try:
                _wait(client, job.name, job.namespace, timeout)
            except NotFoundError as error:
                raise JobNotRunningError(f"{job.name} was deleted while its end was waited for") from error


@verb()
def wait(client: "Client", *, name: Name, timeout: Timeout = None) -> None:
    """Wait until a job has succeeded: exit code 0; 1 it failed, 2 time is over, 3 it is suspended or deleted."""
    _wait(client, name, None, timeout)


@verb()
def suspend(client: "Client", *, name: Name) -> None:
    """Have a job save and leave its nodes; `resume` has it go on."""
    client.job(name).suspend()
    say(f"{name} saves and leaves its nodes")


@verb()
def resume(client: "Client", *, name: Name) -> None:
    """Have a suspended job go on from its newest checkpoint."""
    client.job(name).resume()
    say(f"{name} goes on")


@verb()
def resize(
    client: "Client",
    *,
    name: Name,
    count: Annotated[int, typer.Option("--nodes", min=1, help="Number of nodes.")],
    gpus_per_node: Annotated[int | None, typer.Option("--gpus-per-node", min=0, help="GPUs on each.")] = None,
    timeout: Timeout = None,
) -> None:
    """Have a job save, leave, and go on with another number of nodes."""
    with _interruptible(name, STAYS_RESIZED):
        client.job(name).resize(count, gpus_per_node=gpus_per_node, timeout=timeout)
    say(f"{name} goes on with {count} nodes")


@verb()
def save(client: "Client", *, name: Name, timeout: Timeout = 600) -> None:
    """Have a job that trains write a checkpoint now."""
    _saved(name, client.job(name).save(timeout=timeout))


@verb()
def drill(client: "Client", *, name: Name, timeout: Timeout = 600) -> None:
    """Have a job save as if its pods were told to go, and measure how long that takes."""
    _saved(name, client.job(name).drill(timeout=timeout))


@verb()
def stacks(
    client: "Client",
    *,
    name: Name,
    rank: Annotated[
        int | None, typer.Option("--rank", min=0, help="Print only this rank's: a process, numbered through all pods.")
    ] = None,
    timeout: Timeout = 120,
) -> None:
    """Have all ranks of a job write their Python stacks, and print them; they stay in its history."""
    found = client.job(name).stacks(timeout=timeout)
    chosen = [one for one in found if rank in (None, one.rank)]
    if not chosen:
        who = f"rank {rank}" if rank is not None else "any rank"
        raise NotFoundError(f"{name}: the pods' logs have no stacks of {who}")
    for one in chosen:
        say(f"rank {one.rank}, in {one.pod}:")
        say(one.stacks)


@verb()
def stop(client: "Client", *, name: Name, timeout: Timeout = None) -> None:
    """Have a job save, then end and delete it; its output stays."""
    with _interruptible(name, STAYS_STOPPED):
        step = client.job(name).stop(timeout=timeout)
    say(
        f"{name} is stopped"
        + (f"; its newest checkpoint is of step {step}" if step is not None else ", without a checkpoint")
    )


@verb()
def delete(client: "Client", *, name: Name) -> None:
    """Delete a job and its pods at once; its output stays."""
    client.job(name).delete()
    say(f"{name} is deleted; its output stays")


@verb()
def uncordon(
    client: "Client",
    *,
    node: Annotated[str, typer.Argument(metavar="NODE", help="The node's name.", autocompletion=complete_node)],
) -> None:
    """Uncordon a node; one that jobs only avoid is used again."""
    client.uncordon(node)
    say(f"{node} takes pods again")


@contextmanager
def _interruptible(name: str, after: str) -> Iterator[None]:
    """On Ctrl-C tell what becomes of the job."""
    try:
        yield
    except KeyboardInterrupt:
        note(f"{name}: {after.format(name=name)}")
        raise


def _wait(client: "Client", name: str, namespace: str | None, timeout: float | None) -> None:
    told = ""

    def progress(row: JobRow) -> None:
        nonlocal told
        words = [row.phase]
        if row.step is not None:
            words.append(f"step {row.step}/{row.total_steps}")
        if row.loss is not None:
            words.append(f"loss {row.loss:.4g}")
        if row.eta_seconds is not None:
            words.append(f"{duration(row.eta_seconds)} to go")
        if (line := f"{name}: {', '.join(words)}") != told:
            told = line
            note(line)

    with _interruptible(name, GOES_ON):
        row = client.job(name, namespace=namespace).wait(timeout, on_change=progress)
    say(f"{name} has succeeded" + (f" after {row.step} steps" if row.step is not None else ""))


def _saved(name: str, answer: dict[str, Any]) -> None:
    seconds = answer.get("seconds")
    took = f" after {seconds:.1f} s" if isinstance(seconds, int | float) else ""
    say(f"{name}: step {answer.get('step')} is saved{took}")


def _manifests(file: str) -> list[dict[str, Any]]:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        found = load_all(text)
    except (OSError, UnicodeDecodeError) as error:
        raise NotFoundError(f"{file} cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise RefusedError(f"{file} is no YAML: {' '.join(str(error).split())}") from error
    if not found or not all(isinstance(one, dict) for one in found):
        raise RefusedError(f"{file} has no TrainingJob in it")
    return found
