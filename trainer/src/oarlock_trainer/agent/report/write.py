"""The process that writes the job's page once, from what lies below the output.

    python -m oarlock_trainer.agent.report.write --output FOLDER --phase Running --parent PID

It is another process for the sake of its bounds: beside ranks that train it takes the processor last, of time and memory no
more than it is given, and of memory nothing that its container does not have: the kernel may end all of a container for
one process of it. What goes wrong is one line in the agent's log; the older page then stays.
"""

from __future__ import annotations

import argparse
import logging
import os
import resource
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from oarlock.explain.attempts import uid_of
from oarlock.facts.folder import NoOutputError, from_folder
from oarlock.report import find_gallery, report
from oarlock_api.contract.layout import REPORT_PAGE
from oarlock_trainer.agent import logs
from oarlock_trainer.agent.report.report_page import RUNNING
from oarlock_trainer.agent.report.room import bytes_left
from oarlock_trainer.runtime.assignment import read_pod
from oarlock_trainer.runtime.atomic_write import TEMPORARY, write_bytes
from oarlock_trainer.runtime.parent import die_with

log = logging.getLogger(__name__)

_LAST = 19
"""Of nice(2): whoever else wants the processor has it."""
_CPU_SECONDS = 60
MEMORY_BYTES = 384 * 1024**2
"""Of address space. A page of a million lines of metrics.jsonl (16 MiB of it are read) and 8 MiB of story takes half."""
_OOM_SCORE = "1000"
"""Where memory is short all the same, this process is the first to go."""


def main() -> None:
    """Bound this process, and write."""
    parser = argparse.ArgumentParser(prog="oarlock_trainer.agent.report.write", description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="the job's output directory")
    parser.add_argument("--phase", required=True, help="how the job stands")
    parser.add_argument("--parent", type=int, required=True, help="the agent, with which this process ends")
    given = parser.parse_args()
    die_with(given.parent)
    if given.phase == RUNNING:
        os.nice(_LAST)
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
    logs.set_up(read_pod(os.environ))
    write_within(given.output, phase=given.phase, left=bytes_left())


def write_within(output: Path, *, phase: str, left: int | None) -> None:
    """Write the page, or say in one line why not. `left`: bytes of memory, where somebody knows."""
    if left is not None and left < MEMORY_BYTES:
        log.warning(
            "the report is not written: the container has %d MiB of memory left, and %d may be needed",
            *(left >> 20, MEMORY_BYTES >> 20),
        )
        return
    try:
        write(output, phase=phase)
    except NoOutputError:
        return  # the job's output was never reached
    except Exception as error:  # noqa: BLE001 - a report ends nothing; the log has the reason
        log.warning("the report is not written: %s: %s", type(error).__name__, error)


def write(output: Path, *, phase: str) -> None:
    """Replace the page. Raises NoOutputError and OSError."""
    page = output / REPORT_PAGE
    facts = from_folder(output, now=datetime.now(UTC), phase=phase)
    written = report(facts, find_gallery(output, job_uid=uid_of(facts), page=page))
    page.parent.mkdir(exist_ok=True)
    for left in page.parent.glob(f"{TEMPORARY}{page.name}-*"):  # of a writer that was killed
        with suppress(OSError):
            left.unlink()
    write_bytes(page, written.encode())


if __name__ == "__main__":
    main()
