"""The rank host: one process per node that imports everything heavy once, and forks the node's ranks.

It starts together with the agent's preflight, so that seconds of imports cost no wall-clock time of their own, and all
ranks share the imported pages. Nothing here may initialize CUDA: a forked process could not use it.

    python -m oarlock_trainer.ranks.rank_host --control FD --program MODULE:FUNCTION [--warm MODULE:FUNCTION]

The agent writes JSON lines into the control pipe: {"do": "start", "ranks": [{RANK: ..., LOCAL_RANK: ...}, ...]}, with the
host's own variables that they do not get in `without`; {"do": "signal", "number": 15}; and {"do": "clear"}, which kills
what is left of the ranks: then they can be started anew. The end of the pipe ends the host. The host answers on the ranks'
own channel with HostEvent lines; since ranks write there too, a rank's last words always precede the news of its end. Every
rank leads a session of its own and is killed by the kernel when the host dies, as the host is when the agent dies. On
STACKS_SIGNAL a rank writes its Python stacks into the inherited descriptor that OARLOCK_STACKS_FD names.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import faulthandler
import gc
import importlib
import io
import json
import os
import select
import signal
import sys
import traceback
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NoReturn

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_trainer.runtime import channel, wakeup
from oarlock_trainer.runtime.channel import DRILL_SIGNAL, SAVE_SIGNAL
from oarlock_trainer.runtime.parent import die_with

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PROGRAM = "oarlock_trainer.loop.train:main"
WARM = "oarlock_trainer.ranks.preload:import_everything"
STACKS_SIGNAL = signal.SIGUSR2
STACKS_FD = "OARLOCK_STACKS_FD"
_FOR_RANKS = {signal.SIGTERM, SAVE_SIGNAL, DRILL_SIGNAL, STACKS_SIGNAL}
_SET_NAME = 15
"""PR_SET_NAME of prctl(2)."""

_CUDA_DRIVER = "libcuda.so.1"
_CUDA_SUCCESS = 0


class HostEvent(StrEnum):
    """What the host tells, beside the ranks' own events."""

    READY = "host-ready"
    """Imports are done; ranks can be forked."""
    STARTED = "host-started"
    """pid: of the rank that the line names."""
    ENDED = "host-ended"
    """code: exit code of the rank that the line names, or minus the signal that killed it. Not of those that were cleared."""
    CLEARED = "host-cleared"
    """No rank is left; the next can be started."""


class ForkedRanks:
    """The processes of this node's ranks."""

    def __init__(self, program: Callable[[], int]) -> None:
        self._program = program
        self._rank_of: dict[int, int] = {}
        self.clearing = False
        """Whether those that are left were killed by `clear`."""

    def __len__(self) -> int:
        return len(self._rank_of)

    @property
    def pids(self) -> dict[int, int]:
        """Rank -> pid of each that is not reaped yet."""
        return {rank: pid for pid, rank in self._rank_of.items()}

    def start(self, environments: Sequence[Mapping[str, str]], *, without: Sequence[str] = ()) -> None:
        """Fork one rank for each environment (what differs from this process's own, `without` these variables of it)."""
        _refuse_initialized_cuda()
        gc.collect()
        gc.freeze()  # the collector would otherwise touch, and so copy, every shared page in every rank
        host = os.getpid()
        # Blocked across the fork: a signal that arrives before the rank can take it waits instead of being lost.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _FOR_RANKS)
        for environment in environments:
            sys.stdout.flush()
            sys.stderr.flush()
            pid = os.fork()
            if pid == 0:
                _become_rank(environment, without, self._program, host)
            self._rank_of[pid] = int(environment["RANK"])
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def signal(self, number: int) -> None:
        """Send a signal to each rank that is not reaped yet (to the rank alone, not to its helpers)."""
        for pid in self._rank_of:
            os.kill(pid, number)

    def clear(self) -> None:
        """Kill each rank with all processes of its group."""
        self.clearing = True
        for pid in self._rank_of:
            for kill in (os.killpg, os.kill):  # one that was forked just now leads no group yet
                with contextlib.suppress(ProcessLookupError):
                    kill(pid, signal.SIGKILL)

    def reap(self) -> list[tuple[int, int]]:
        """(rank, exit code or minus the signal) of each rank that ended since the last call. Never blocks."""
        ended: list[tuple[int, int]] = []
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                rank = self._rank_of.pop(found[0], None)
                if rank is not None:
                    ended.append((rank, os.waitstatus_to_exitcode(found[1])))
        return ended


def load(name: str) -> Callable[[], Any]:
    """Import the function that `module:function` names."""
    module, _, function = name.partition(":")
    loaded: Callable[[], Any] = getattr(importlib.import_module(module), function)
    return loaded


def print_whole_lines() -> None:
    """Write each line of `print` at once, and whole up to a pipe's 4096 bytes: the node's ranks share their pipes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, write_through=False)


def _refuse_initialized_cuda() -> None:
    """Raise RuntimeError where anything in this process, torch or another library, has initialized CUDA.

    CUDA's driver is asked itself, and only where somebody has loaded it. Open /dev/nvidia* would say less: NVML, which may be
    used before a fork, opens them too.
    """
    try:
        driver = ctypes.CDLL(_CUDA_DRIVER, mode=os.RTLD_NOLOAD)
    except OSError:
        return  # nobody has loaded it
    if driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) == _CUDA_SUCCESS:  # before cuInit it is "not initialized"
        raise RuntimeError("an import initialized CUDA in the rank host: forked ranks could not use it")


def _become_rank(
    environment: Mapping[str, str], without: Sequence[str], program: Callable[[], int], host: int
) -> NoReturn:
    """Run the program in this freshly forked process and end with its code.

    Ends by _exit: interpreter and library teardown (gloo's and NCCL's threads) must neither change the code nor hang.
    The program closes what it opened.
    """
    code = 1
    try:
        die_with(host)
        os.setsid()
        ctypes.CDLL(None).prctl(_SET_NAME, f"rank-{environment['RANK']}".encode(), 0, 0, 0)  # for top and py-spy
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the agent decides
        signal.signal(signal.SIGTERM, _leave_before_start)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        for name in without:
            os.environ.pop(name, None)
        os.environ.update(environment)
        _write_stacks_on_request(environment.get(STACKS_FD, ""))
        code = run(program)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001 - nothing may unwind into the host's own frames
        traceback.print_exc()
    finally:
        os._exit(code)


def run(program: Callable[[], int]) -> int:
    """Exit code of the program; what it raises is printed, told to the agent, and an application failure (1)."""
    try:
        result = program()
    except SystemExit as leaving:
        result = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException as error:  # noqa: BLE001 - whatever it is, this is the end of the rank
        traceback.print_exc()
        last_words = "".join(traceback.format_exception_only(error)).strip()
        channel.send(channel.Event.FAILURE, code=1, summary=last_words)
        return 1
    return int(result or 0) & 0xFF


def _write_stacks_on_request(descriptor: str) -> None:
    """Even while the interpreter's lock is held or native code blocks: the handler is C, and writes without a lock."""
    if descriptor.isdecimal():
        faulthandler.register(STACKS_SIGNAL, file=int(descriptor), all_threads=True)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {STACKS_SIGNAL})


def _leave_before_start(_number: int, _frame: object) -> None:
    """SIGTERM before the program has its own handler: there is nothing to save yet."""
    os._exit(ExitCode.LEFT_ON_REQUEST)


def _warm(name: str) -> None:
    try:
        load(name)()
    except ModuleNotFoundError as error:
        if error.name != name.partition(":")[0]:
            raise  # a part of ours is missing, not the optional warm-up itself


def _tell(descriptor: int, event: HostEvent, rank: int, **fields: Any) -> None:
    """Write an event that must not be lost: waits for room for as long as it takes."""
    line = channel.encode(event, rank, fields)
    while True:
        try:
            os.write(descriptor, line)
        except BlockingIOError:
            select.select([], [descriptor], [])
        else:
            return


def serve(control: int, told: int, ranks: ForkedRanks) -> None:
    """Follow the agent until it closes the control pipe."""
    waking = wakeup.on(signal.SIGCHLD)
    _tell(told, HostEvent.READY, -1)
    pending = b""
    while True:
        readable = select.select([control, waking], [], [])[0]
        if waking in readable:
            wakeup.taken(waking)
            _tell_ends(told, ranks)
        if control in readable:
            received = os.read(control, 65536)
            if not received:
                return
            *lines, pending = (pending + received).split(b"\n")
            for line in lines:
                _obey(json.loads(line), told, ranks)


def _tell_ends(told: int, ranks: ForkedRanks) -> None:
    for rank, code in ranks.reap():
        if not ranks.clearing:
            _tell(told, HostEvent.ENDED, rank, code=code)
    if ranks.clearing and not ranks:
        ranks.clearing = False
        _tell(told, HostEvent.CLEARED, -1)


def _obey(order: Mapping[str, Any], told: int, ranks: ForkedRanks) -> None:
    if order["do"] == "start":
        ranks.start(order["ranks"], without=order.get("without", ()))
        for rank, pid in ranks.pids.items():
            _tell(told, HostEvent.STARTED, rank, pid=pid)
    elif order["do"] == "signal":
        ranks.signal(order["number"])
    elif order["do"] == "clear":
        _tell_ends(told, ranks)  # those that ended by themselves, as far as that can be told apart
        ranks.clear()
        _tell_ends(told, ranks)


def main(arguments: Sequence[str] | None = None) -> int:
    """Import, report, serve."""
    parser = argparse.ArgumentParser(prog="python -m oarlock_trainer.ranks.rank_host", description=__doc__)
    parser.add_argument("--control", type=int, required=True, help="descriptor of the agent's orders")
    parser.add_argument("--parent", type=int, required=True, help="pid of the agent: the host dies with it")
    parser.add_argument("--program", default=PROGRAM, help="MODULE:FUNCTION that each rank runs")
    parser.add_argument("--warm", default=WARM, help="MODULE:FUNCTION that imports what the program needs")
    options = parser.parse_args(arguments)
    die_with(options.parent)
    faulthandler.enable()
    for number in (signal.SIGTERM, signal.SIGINT, SAVE_SIGNAL, DRILL_SIGNAL):
        signal.signal(number, signal.SIG_IGN)
    told = int(os.environ[channel.AGENT_FD])
    os.set_blocking(told, False)
    print_whole_lines()

    def prepare_and_serve() -> int:
        _warm(options.warm)
        serve(options.control, told, ForkedRanks(load(options.program)))
        return 0

    return run(prepare_and_serve)


if __name__ == "__main__":
    sys.exit(main())
