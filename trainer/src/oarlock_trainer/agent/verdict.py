"""From the endings of a node's ranks to one exit code. Pure: same endings, same verdict.

The rule, in order: a configuration error (85) is the same on every rank and can't be healed by a restart; a fenced
rank (88) means that somebody newer is at work; a storage fault (84) makes everything else fail after it. Then the
earliest of all other root causes, then ranks that left after saving (86), and last the victims (82): a rank that only
lost its peers never hides why they were lost.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oarlock_api.contract.exit_codes import ExitCode, FailureClass, failure_class
from oarlock_trainer.health import error_text
from oarlock_trainer.health.error_text import ErrorSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oarlock_api.contract.report import Evidence, Gpu

_FIRST = (ExitCode.CONFIGURATION, ExitCode.FENCED, ExitCode.STORAGE)
_LAST = (ExitCode.LEFT_ON_REQUEST, ExitCode.PEER_LOST, ExitCode.DONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How one rank ended. `code` is its exit code, or minus the signal that killed it; `summary` its own last words."""

    rank: int
    code: int
    summary: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The agent's exit code and one sentence for people.

    `first_error_rank` is the rank that the verdict rests on, `gpu` the one that is itself to blame.
    """

    code: int
    summary: str
    first_error_rank: int | None = None
    gpu: Gpu | None = None
    xid: int | None = None
    evidence: tuple[Evidence, ...] = ()


def understand(ending: Ending, output: str) -> Ending:
    """An ending that only says that the program failed, read again by the words of CUDA, cuDNN and NCCL.

    They stand in the rank's own last words or, where native code aborted or a program only ended, in `output`, the end of
    the node's standard error.
    """
    code = exit_code(ending.code)
    # Only who aborts says why before; after any other signal the last line is somebody else's.
    killed = ending.code < 0 and ending.code != -signal.SIGABRT
    if killed or code == ExitCode.DONE or failure_class(code) is not FailureClass.APPLICATION:
        return ending
    found = error_text.find(ending.summary) if ending.summary else error_text.find_last(output)
    told = (
        {ErrorSource.GPU: ExitCode.RESTART_PROCESS, ErrorSource.PEER: ExitCode.PEER_LOST}.get(found[0])
        if found
        else None
    )
    if found is None or told is None:
        return ending
    return Ending(rank=ending.rank, code=told, summary=ending.summary or found[1])


def judge(endings: Sequence[Ending], *, out_of_memory_kills: int = 0, who: str = "") -> Verdict:
    """Verdict over at least one ending, in the order in which they were seen.

    `out_of_memory_kills` is how many of the container's processes the kernel killed for memory meanwhile. `who` is what to
    call the one that it rests on, where that is no rank.
    """
    decisive = min(endings, key=lambda ending: _weight(ending.code))  # min keeps the earliest of equals
    code = exit_code(decisive.code)
    if code == ExitCode.DONE:
        return Verdict(code=code, summary=f"{who} is done" if who else "all ranks are done")
    summary = _describe(decisive, code, out_of_memory_kills, who)
    return Verdict(code=code, summary=summary, first_error_rank=decisive.rank)


def exit_code(code: int) -> int:
    """Exit code that stands for an ending: 128 + signal for a killed process."""
    return code if code >= 0 else 128 - code


def is_failure(code: int) -> bool:
    """Whether an ending is neither done nor left on request: then the rest of the gang can't go on."""
    return code not in {ExitCode.DONE, ExitCode.LEFT_ON_REQUEST}


def _weight(code: int) -> int:
    if code in _FIRST:
        return _FIRST.index(ExitCode(code))
    if code in _LAST:
        return len(_FIRST) + 1 + _LAST.index(ExitCode(code))
    return len(_FIRST)


def _describe(ending: Ending, code: int, out_of_memory_kills: int, command: str) -> str:
    who = command or f"rank {ending.rank}"
    if ending.code < 0:
        return (
            f"{who} was killed by {_signal_name(-ending.code)}{_killed_why(-ending.code, out_of_memory_kills, command)}"
        )
    if ending.summary:
        return f"{who}: {ending.summary}"
    if code == ExitCode.PEER_LOST:
        return f"{who} lost a peer"
    if code == ExitCode.LEFT_ON_REQUEST:
        return f"{who} left on request"
    return f"{who} ended with exit code {code} and said nothing: its log has the reason"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _killed_why(number: int, out_of_memory_kills: int, command: str) -> str:
    if number != signal.SIGKILL:
        return ": a crash in native code leaves its stack in the log" if number in _CRASHES else ""
    if out_of_memory_kills:
        return (
            f": out of memory (the kernel killed {out_of_memory_kills} processes of this container): "
            "raise spec.pod.resources.limits.memory"
            f"{'' if command else ', or lower batchSize or data.tuning.workers'}"
        )
    return ": out of memory on the node, if nobody killed it by hand"


_CRASHES = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE})
