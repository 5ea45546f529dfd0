"""The verbs that only read: ls, get, top, events, faults, nodes."""

import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oarlock.cli.output import Column, age, checked, duration, say, show, table, write
from oarlock.cli.verb import Name, Output, verb
from oarlock.in_words import kind
from oarlock.parts import objects, part
from oarlock.patience import patient
from oarlock.rows import JobRow, job_row, ready
from oarlock.terminal import escaped

if TYPE_CHECKING:
    from oarlock.client import Client

WATCH_SECONDS = 2.0
NAMESPACE: Column = ("NAMESPACE", lambda row: row.namespace)


def _of(done: int | None, all_: int | None) -> str | None:
    return None if all_ is None else f"{done or 0}/{all_}"


JOBS: tuple[Column, ...] = (
    ("NAME", lambda row: row.name),
    ("PHASE", lambda row: "Deleting" if row.deleting else row.phase),
    ("NODES", ready),
    ("STEP", lambda row: _of(row.step, row.total_steps)),
    ("S/STEP", lambda row: row.seconds_per_step),
    ("ETA", lambda row: duration(row.eta_seconds)),
    ("RESTARTS", lambda row: row.restarts),
    ("AGE", lambda row: age(row.created)),
)
WIDE_JOBS: tuple[Column, ...] = (
    ("LOSS", lambda row: row.loss),
    ("GPUS", lambda row: row.gpus),
    ("ATTEMPT", lambda row: row.attempt),
    ("CHECKPOINT", lambda row: row.checkpoint_step),
    ("REASON", lambda row: row.reason),
    ("LAST-FAULT", lambda row: row.last_fault),
)
TOP: tuple[Column, ...] = (
    ("NAME", lambda row: row.name),
    ("PHASE", lambda row: row.phase),
    ("GPUS", lambda row: row.gpus),
    ("STEP", lambda row: _of(row.step, row.total_steps)),
    ("LOSS", lambda row: row.loss),
    ("S/STEP", lambda row: row.seconds_per_step),
    ("ETA", lambda row: duration(row.eta_seconds)),
    ("LAST-FAULT", lambda row: row.last_fault),
)
EVENTS: tuple[Column, ...] = (
    ("LAST SEEN", lambda row: age(row.time)),
    ("TYPE", lambda row: row.type),
    ("REASON", lambda row: row.reason),
    ("OBJECT", lambda row: row.about),
    ("MESSAGE", lambda row: row.message + (f" (x{row.count})" if row.count > 1 else "")),
)
FAULTS: tuple[Column, ...] = (
    ("NODE", lambda row: row.node),
    ("GPU", lambda row: row.gpu),
    ("KIND", lambda row: kind(row.kind)),
    ("XID", lambda row: row.xid),
    ("POD", lambda row: row.rank),
    ("COUNT", lambda row: row.count),
    ("AGE", lambda row: age(row.time)),
    ("MESSAGE", lambda row: row.message),
)
NODES: tuple[Column, ...] = (
    ("NAME", lambda row: row.name),
    ("GPUS", lambda row: row.gpus),
    ("READY", lambda row: "yes" if row.ready else "no"),
    ("CORDONED", lambda row: ("by Oarlock" if row.by_oarlock else "yes") if row.cordoned else "no"),
    ("FOR JOB", lambda row: row.job),
    ("AGE", lambda row: age(row.time)),
    ("REASON", lambda row: row.reason),
)
All = Annotated[bool, typer.Option("--all-namespaces", "-A", help="Of all namespaces.")]
Selector = Annotated[
    str | None, typer.Option("--selector", "-l", metavar="LABELS", help="Only those with these labels.")
]


@verb()
def ls(
    client: "Client",
    *,
    all_namespaces: All = False,
    selector: Selector = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Then print each job again whenever it changes.")
    ] = False,
    output: Output = "table",
) -> None:
    """List jobs."""
    columns = [NAMESPACE, *JOBS] if all_namespaces else list(JOBS)
    if all_namespaces and output == "name":
        columns = [("NAME", lambda row: f"{row.namespace}/{row.name}")]
    rows = client.ls(all_namespaces=all_namespaces, selector=selector)
    where = "any namespace" if all_namespaces else f"the namespace {client.namespace}"
    show("JobList", rows, columns, output=output, wide=WIDE_JOBS, empty=f"no TrainingJobs in {where}")
    known = {(row.namespace, row.name): row for row in rows}
    while watch:
        sys.stdout.flush()
        time.sleep(WATCH_SECONDS)
        rows = patient(lambda: client.ls(all_namespaces=all_namespaces, selector=selector), sleep=time.sleep)
        now = {(row.namespace, row.name): row for row in rows}
        gone = [replace(row, phase="Deleted", deleting=False) for key, row in known.items() if key not in now]
        changed = [row for key, row in now.items() if known.get(key) != row] + gone
        if changed:
            show("JobList", changed, columns, output="jsonl" if output in {"json", "yaml"} else output, wide=WIDE_JOBS)
        known = now


@verb()
def get(client: "Client", *, name: Name, output: Output = "table") -> None:
    """Show one job. With -o json or yaml: the whole object, as kubectl has it."""
    manifest = client.job(name).manifest
    if checked(output) in {"json", "yaml"}:
        write(manifest, output)
    elif output in {"jsonl", "name"}:
        show("JobList", [job_row(manifest)], JOBS, output=output)
    else:
        _describe(manifest, wide=output == "wide")


@verb()
def top(
    client: "Client",
    *,
    all_namespaces: All = False,
    selector: Selector = None,
    once: Annotated[bool, typer.Option("--once", help="Print once, also to a terminal.")] = False,
    output: Output = "table",
) -> None:
    """Show running jobs live: loss, seconds per step, GPUs. Into a pipe or a file: once."""

    def running() -> list[JobRow]:
        rows = client.ls(all_namespaces=all_namespaces, selector=selector)
        return [row for row in rows if not row.finished and row.phase != "Suspended"]

    if once or output != "table" or not sys.stdout.isatty():
        show("JobList", running(), TOP, output=output, wide=WIDE_JOBS, empty="no job is running")
        return
    from rich.live import Live  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415 - a plain string would be read as markup

    rows = running()
    with Live(screen=True, auto_refresh=False) as live:
        while True:
            gpus = sum(row.gpus or 0 for row in rows)
            drawn = Table(*[title for title, _ in TOP], title=f"{len(rows)} jobs, {gpus} GPUs", box=None)
            for row in rows:
                drawn.add_row(*[Text(_text(read(row))) for _, read in TOP])
            live.update(drawn, refresh=True)
            time.sleep(WATCH_SECONDS)
            rows = patient(running, sleep=time.sleep)


@verb()
def events(client: "Client", *, name: Name, output: Output = "table") -> None:
    """List Events of a job and its pods, the oldest first."""
    job = client.job(name)
    rows = job.events()
    if not rows:
        _ = job.row  # a job that is not there has none either, and that is said
    columns = EVENTS if output != "name" else [("OBJECT", lambda row: row.about)]
    show("EventList", rows, columns, output=output, empty=f"no Events of {name}: the API server keeps them for an hour")


@verb()
def faults(client: "Client", *, name: Name, output: Output = "table") -> None:
    """List what spoke against which GPU and which node."""
    show(
        "FaultList",
        client.job(name).faults(),
        FAULTS,
        output=output,
        empty=f"nothing speaks against a GPU or node of {name}",
    )


@verb()
def nodes(client: "Client", *, output: Output = "table") -> None:
    """List nodes with GPUs: which are cordoned, by whom and why."""
    show("NodeList", client.nodes(), NODES, output=output, empty="no node has GPUs, and none is cordoned")


def _describe(manifest: dict[str, Any], *, wide: bool) -> None:
    row, status = job_row(manifest), part(manifest, "status")
    told: list[tuple[str, object]] = [
        ("Name", f"{row.namespace}/{row.name}"),
        ("Phase", row.phase + (f" ({row.reason})" if row.reason not in {None, row.phase} else "")),
        ("Message", row.message),
        ("Nodes", f"{_of(row.ready_nodes, row.nodes)} ready, {row.gpus or 0} GPUs"),
        ("Spares", f"{_of(row.ready_spares, row.spares)} ready" if row.spares else None),
        ("Step", _of(row.step, row.total_steps)),
        ("Loss", row.loss),
        ("Seconds per step", row.seconds_per_step),
        ("ETA", duration(row.eta_seconds)),
        ("Checkpoint", part(status, "latestCheckpoint").get("path")),
        ("In memory", _in_memory(part(status, "memory"))),
        ("Output", part(status, "output").get("path")),
        ("Restarts", row.restarts),
        ("Last fault", row.last_fault),
        ("Age", age(row.created)),
    ]
    width = max(len(title) for title, _ in told) + 2
    for title, value in told:
        if value is not None:
            say(f"{title + ':':<{width}}{_text(value)}")
    attempts = objects(status, "attempts")
    if attempts:
        say("")
        titles = ["ATTEMPT", "STARTED", "WHY IT STARTED", "ENDED", "WHY IT ENDED", "FROM STEP", "NODES"]
        table(
            titles,
            [
                [
                    one.get("number"),
                    _ago(one.get("startTime")),
                    one.get("reason"),
                    _ago(one.get("endTime")),
                    one.get("endReason"),
                    one.get("resumedFromStep"),
                    ",".join(map(str, one["nodeNames"])) if isinstance(one.get("nodeNames"), list) else None,
                ]
                for one in attempts
            ],
        )
    conditions = objects(status, "conditions")
    if wide and conditions:
        say("")
        keys = ("type", "status", "reason", "message")
        table([key.upper() for key in keys], [[one.get(key) for key in keys] for one in conditions])


def _in_memory(held: Mapping[str, Any]) -> str | None:
    if not held:
        return None
    copied = {"True": ", copied", "False": ", not copied"}.get(str(held.get("copied")), "")
    past = _ago(held.get("saveTime"))
    return f"step {held.get('step')}{f', {past}' if past else ''}{copied}"


def _ago(time: object) -> str | None:
    past = age(str(time))
    return f"{past} ago" if past else None


def _text(value: object) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else escaped(str(value))
