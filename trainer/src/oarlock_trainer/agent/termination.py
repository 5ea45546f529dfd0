"""The report of an ending: first into the termination log, then as a copy for people below the output.

The termination log is a small local file that the kubelet reads: writing it takes microseconds and is done the moment
the verdict is known, so that no later SIGKILL can lose it. The copy goes to shared storage, which may hang: a thread
writes it, and nobody waits for it longer than asked.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING

from oarlock_api.contract.exit_codes import failure_class
from oarlock_api.contract.layout import REPORTS
from oarlock_api.contract.report import Report
from oarlock_trainer.runtime.clock import timestamp

if TYPE_CHECKING:
    from pathlib import Path

    from oarlock_api.contract.status import PodStatus
    from oarlock_trainer.agent.verdict import Verdict
    from oarlock_trainer.runtime.assignment import Pod

log = logging.getLogger(__name__)


def report_of(verdict: Verdict, pod: Pod, status: PodStatus | None, *, leaving_seconds: float | None = None) -> Report:
    """Contract's report of a verdict; a good ending has no class, and tells the last step and checkpoint."""
    return Report(
        attempt=pod.attempt,
        rank=pod.rank,
        pod_uid=pod.pod_uid,
        failure_class=failure_class(verdict.code) if verdict.code else "",
        code=verdict.code,
        detected_at=timestamp(),
        summary=verdict.summary.removesuffix("."),  # others build their sentences around it
        step=status.figures.step if status else None,
        checkpoint_step=status.checkpoint.step if status and status.checkpoint else None,
        first_error_rank=verdict.first_error_rank,
        gpu=verdict.gpu,
        xid=verdict.xid,
        evidence=verdict.evidence,
        leaving_seconds=leaving_seconds,
    )


def write(report: Report, path: Path) -> None:
    """Write the termination message in place: the kubelet mounted this very file. A failure is logged, never raised."""
    try:
        path.write_text(report.to_json())
    except OSError as error:
        log.error("the report can't be written: %s", error, extra={"report": report.to_json()})  # noqa: TRY400


def copy_to_output(report: Report, output: Path) -> threading.Thread:
    """Start to copy the report to `<output>/.oarlock/reports/<attempt>-<rank>.json`; joining is up to the caller.

    The output must exist already: a job whose output was never reachable leaves nothing behind.
    """
    thread = threading.Thread(target=_copy, args=(report, output), name="report-copy", daemon=True)
    thread.start()
    return thread


def _copy(report: Report, output: Path) -> None:
    folder = output / REPORTS
    name = f"{report.attempt}-{report.rank}.json"
    with contextlib.suppress(OSError):  # the termination log has it; a full disk may well be what it says
        if output.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            fresh = folder / f"{name}.new"
            fresh.write_text(report.to_json() + "\n")
            fresh.replace(folder / name)
