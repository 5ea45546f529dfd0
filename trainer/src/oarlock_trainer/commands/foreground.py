"""`oarlock-trainer train` and `preprocess`: a job's ranks on this machine, without agent, report and preflight."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import tempfile
from pathlib import Path

from oarlock_api.contract.environment import Variable
from oarlock_api.contract.exit_codes import ExitCode
from oarlock_api.training import Task
from oarlock_trainer.agent.ranks import accelerate_config, rank_environment
from oarlock_trainer.agent.verdict import exit_code
from oarlock_trainer.commands import launched
from oarlock_trainer.ranks import rank_host
from oarlock_trainer.runtime.assignment import AssignmentError, read_assignment

_SHELLS = 128
"""What a shell adds to the number of the signal that ended a program."""


class _AskedError(BaseException):
    """Ctrl-C, or SIGTERM: the ranks are to save and end. Raised wherever the main thread is."""

    def __init__(self, number: int) -> None:
        self.code = _SHELLS + number


def preprocess(job: Path) -> int:
    """Fill the caches of a job with all its ranks, whatever its task; returns an exit code as `run`."""
    if launched.is_launched(os.environ):
        sys.stderr.write(
            "preprocess starts all ranks itself: run it without a launcher, or `train` with task: Preprocess under it\n"
        )
        return ExitCode.CONFIGURATION
    try:
        body = json.loads(job.read_text(encoding="utf-8"))
        body["training"]["task"] = Task.PREPROCESS
        body["nodes"] = 1  # what is cached is the same for any number of ranks
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.stderr.write(f"{job} is no job file with spec.training, as the operator writes it: {error!r}\n")
        return ExitCode.CONFIGURATION
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, job.name)
        path.write_text(json.dumps(body), encoding="utf-8")
        return run(path, rank_host.PROGRAM)


def run(job: Path, program: str) -> int:
    """Run all ranks; the first that fails ends the others. Returns its exit code, or 0.

    Ctrl-C and SIGTERM have all of them save at the next step boundary, and end; a second one ends them at once.
    """
    os.environ.update(
        {
            Variable.CONFIG: str(job.absolute()),
            Variable.MACHINE_RANK: "0",
            Variable.MASTER_ADDR: "127.0.0.1",
            Variable.MASTER_PORT: str(_free_port()),
        }
    )
    try:
        assignment = read_assignment(os.environ)
    except AssignmentError as error:
        sys.stderr.write(f"{error}\n")
        return ExitCode.CONFIGURATION
    if assignment.job.nodes != 1:
        sys.stderr.write(
            f"nodes is {assignment.job.nodes}, but here is one machine: set it to 1, or start each of them with `accelerate "
            "launch ... -m oarlock_trainer train`\n"
        )
        return ExitCode.CONFIGURATION
    os.environ.update(rank_environment.shared(accelerate_config.plan_launch(assignment), os.environ))
    if program == rank_host.PROGRAM:
        rank_host.load(rank_host.WARM)()  # as in a pod: imported once, for all ranks
    ranks = rank_host.ForkedRanks(rank_host.load(program))
    ranks.start([rank_environment.of_rank(assignment, local) for local in range(assignment.ranks_per_node)])
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _ask)
    return _wait_for(ranks)


def _wait_for(ranks: rank_host.ForkedRanks) -> int:
    failed = asked = 0
    while ranks:
        try:
            ended = ranks.reap(block=True)
        except _AskedError as error:
            again, asked = asked, error.code
            words = (
                "ended at once" if again else "the ranks save at the next step, and end; once more ends them at once"
            )
            sys.stderr.write(f"{words}. The same command goes on from the newest checkpoint\n")
            ranks.signal(signal.SIGKILL if again else signal.SIGTERM)
            continue
        for _rank, code in ended:
            if code and not failed and not (asked and code == ExitCode.LEFT_ON_REQUEST):
                failed = exit_code(code)
                ranks.signal(signal.SIGKILL)
    return asked or failed


def _ask(number: int, _frame: object) -> None:
    raise _AskedError(number)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
