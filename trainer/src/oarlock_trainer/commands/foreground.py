"""`oarlock-trainer train` and `preprocess`: a job's ranks on this machine, without agent, report and preflight."""

from __future__ import annotations

import json
import os
import select
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
from oarlock_trainer.runtime import wakeup
from oarlock_trainer.runtime.assignment import AssignmentError, read_assignment

_LEAVE = (signal.SIGINT, signal.SIGTERM)
_SHELLS = 128
"""What a shell adds to the number of the signal that ended a program."""


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

    Ctrl-C and SIGTERM have all of them save at the next step boundary, and end; a second one ends them at once. Where they
    did so the code is that of a shell: 128 and the signal's number.
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
    rank_host.print_whole_lines()
    waking = wakeup.on(signal.SIGCHLD, *_LEAVE)
    ranks = rank_host.ForkedRanks(rank_host.load(program))
    ranks.start([rank_environment.of_rank(assignment, local) for local in range(assignment.ranks_per_node)])
    code = _wait_for(ranks, waking)
    if not code and assignment.job.training.get("task") != Task.PREPROCESS:  # which has told of its caches
        sys.stderr.write(f"done: what it made lies in {assignment.job.output_directory}\n")
    return code


def _wait_for(ranks: rank_host.ForkedRanks, waking: int) -> int:
    asked = failed = 0
    killed = left = False
    while ranks:
        select.select([waking], [], [])
        for number in wakeup.taken(waking):
            if number in _LEAVE:
                killed, asked = asked > 0, _SHELLS + number
                words = (
                    "ended at once"
                    if killed
                    else "the ranks save at the next step, and end; once more ends them at once"
                )
                sys.stderr.write(f"{words}. The same command goes on from the newest checkpoint\n")
                ranks.signal(signal.SIGKILL if killed else signal.SIGTERM)
        for _rank, code in ranks.reap():
            if asked and (code == ExitCode.LEFT_ON_REQUEST or (killed and code == -signal.SIGKILL)):
                left = True
            elif code and not failed:
                failed = exit_code(code)
                ranks.signal(signal.SIGKILL)
    return failed or (asked if left else 0)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
