"""Facts from a job's output directory alone: for jobs whose pods, object and operator are gone.

The job's own program may write there what it wants: only regular files are read, by no link on their way below the
folder, and no more of them than ours can leave.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from oarlock.clock import written
from oarlock.facts.model import Facts, Missing, Object, Output
from oarlock_api.contract.beneath import Beneath, beneath
from oarlock_api.contract.history import MAX_LINE, MAX_READ, METRICS, read_story
from oarlock_api.contract.kept_spec import read_spec
from oarlock_api.contract.layout import (
    CHECKPOINTS,
    FINISHED,
    OWNER,
    PRIVATE,
    REPORTS,
    parse_checkpoint_name,
    parse_owner,
)
from oarlock_api.contract.regular_file import read_regular, read_spread
from oarlock_api.contract.report import MAX_BYTES
from oarlock_api.contract.wire import WireError, parse_object

MARKER = "COMMITTED"
"""A checkpoint's folder is one once this file is in it."""
MAX_METRICS = 16 * 1024 * 1024
"""Bytes of metrics.jsonl that are read: of a longer one, so much in pieces from its beginning to its end."""
METRICS_PIECES = 512
MOST_REPORTS = 4096
"""Files of reports that are read."""


class NoOutputError(ValueError):
    """The folder is no job's output. The message says what to give instead."""


def from_folder(folder: Path, *, now: datetime, phase: str = "") -> Facts:
    """What a job's output directory tells. `phase`: how the job stands, where whoever asks knows.

    Raises NoOutputError where it is none, OSError where it cannot be read.
    """
    output, missing = read_output(folder)
    absent = "not asked: only the output was read"
    if phase:
        absent = "the job wrote this page itself, and asks no cluster: oarlock report JOB does"
    gone = tuple(Missing(what=what, why=absent) for what in ("the job's object", "pods and Events"))
    who = output.spec or {"namespace": "", "name": folder.resolve().name}
    return Facts(
        namespace=who["namespace"],
        name=who["name"],
        time=written(now.astimezone(UTC)),
        output=output,
        phase=phase,
        missing=gone + missing,
    )


def read_output(
    output: Path | Beneath,
    *,
    most_story: int = MAX_READ,
    most_metrics: int | None = None,
    most_reports: int = MOST_REPORTS * MAX_BYTES,
) -> tuple[Output, tuple[Missing, ...]]:
    """The output, and what of it could not be read; bytes of its story, figures and reports at most.

    Raises as from_folder does.
    """
    folder = beneath(output)
    if not (folder / PRIVATE).is_dir():
        raise NoOutputError(
            f"{folder} is no output of a job: it has no {PRIVATE}/. Give <output>/<directory>, such as /mnt/nfs/flux-full"
        )
    missing: list[Missing] = []
    owner: Object | None = None
    try:
        found = parse_owner(read_regular(folder / OWNER, most=MAX_BYTES + 1).decode(errors="replace"))
        owner = {"jobUid": found.job_uid, "attempt": found.attempt}
    except (OSError, WireError) as error:
        missing.append(Missing(what="the fence", why=str(error)))
    history: tuple[Object, ...] = ()
    try:
        history = tuple(asdict(line) for line in read_story(folder, most=most_story))
    except OSError as error:
        missing.append(Missing(what="the history", why=str(error)))
    if not history:
        why = "there is none: no agent (oarlock-trainer train), an older release, or history is off"
        missing.append(Missing(what="the history", why=why))
    spec: Object | None = None
    try:
        spec = asdict(kept) if (kept := read_spec(folder)) else None
    except (OSError, WireError) as error:
        missing.append(Missing(what="the settings", why=str(error)))
    if spec and owner and spec["job"] != owner["jobUid"]:
        spec = None  # of a job that had this output before
    finished: Object | None = None
    with suppress(OSError, WireError):  # most have not
        written = read_regular(folder / FINISHED, most=MAX_BYTES + 1).decode(errors="replace")
        finished = parse_object(written, max_bytes=MAX_BYTES)
    found_there = Output(
        folder=str(folder),
        owner=owner,
        history=history,
        spec=spec,
        reports=tuple(_reports(folder / REPORTS, missing, most_reports)),
        checkpoints=tuple(_checkpoints(folder / CHECKPOINTS)),
        metrics=tuple(_metrics(folder / METRICS, MAX_METRICS if most_metrics is None else most_metrics)),
        finished=finished if finished and owner and finished.get("jobUid") == owner["jobUid"] else None,
    )
    return found_there, tuple(missing)


def _reports(folder: Beneath, missing: list[Missing], most: int) -> Iterator[Object]:
    left = most
    there = (path for path in folder.iterdir() if path.name.endswith(".json")) if folder.is_dir() else ()
    for path in sorted(islice(there, MOST_REPORTS), key=str):
        try:
            content = read_regular(path, most=MAX_BYTES + 1)
            if (left := left - len(content)) < 0:
                missing.append(Missing(what="some reports", why=f"all have more than {most >> 20} MiB"))
                return
            yield parse_object(content.decode(errors="replace"), max_bytes=MAX_BYTES)
        except (OSError, WireError) as error:
            missing.append(Missing(what=f"the report {path.name}", why=str(error)))


def _checkpoints(folder: Beneath) -> list[Object]:
    found = []
    for path in folder.iterdir() if folder.is_dir() else ():
        if (known := parse_checkpoint_name(path.name)) is None:
            continue
        marker = path / MARKER
        try:
            if not path.is_dir():
                continue
            committed = marker.is_file()
            saved = written(datetime.fromtimestamp((marker if committed else path).stat().st_mtime, UTC))
        except FileNotFoundError:
            continue  # the job's retention has deleted it meanwhile
        found.append(
            {"step": known[0], "attempt": known[1], "committed": committed, "savedAt": saved, "path": str(path)}
        )
    return sorted(found, key=lambda one: (one["step"], one["attempt"]))


def _metrics(path: Beneath, most: int) -> Iterator[Object]:
    try:
        lines = read_spread(path, most=most, pieces=METRICS_PIECES).decode(errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        try:
            row = parse_object(line, max_bytes=MAX_LINE)
        except WireError:
            continue
        if "step" in row:
            yield row
