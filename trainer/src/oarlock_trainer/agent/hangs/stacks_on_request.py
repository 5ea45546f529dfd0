"""The Python stacks of all ranks of a gang, because somebody asks (docs/decisions/0050): also of ranks that are stuck.

    rank 0's agent: its own ranks, and over the gang link every other agent -> each: its pod's log, a file of the history

Taken as at a hang, but nothing ends: a signal whose handler is C, and a look at what it wrote some moments later. One at a
time; rank 0's agent sees to that, and to the time between two (requests.py). Only the main thread may use it.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from typing import TYPE_CHECKING

from oarlock_api.contract.history import HISTORY, STACKS, attempt_folder, stacks_name
from oarlock_trainer.agent.hangs.hang_guard import ANSWER_SECONDS
from oarlock_trainer.agent.link.protocol import Answer, Ask, Topic
from oarlock_trainer.runtime import clock

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from oarlock_trainer.agent.history.history import History
    from oarlock_trainer.agent.link.gang_link import GangLink
    from oarlock_trainer.agent.ranks.ranks import Ranks
    from oarlock_trainer.runtime.assignment import Assignment

log = logging.getLogger(__name__)

OTHERS_SECONDS = 10.0
"""What the other agents get, from the beginning."""
KEPT = 5
"""Files of one pod and attempt: the oldest go."""
_LOGGED = 8192
"""Characters of a rank in its pod's log: the end, which has the main thread."""
_NAMED = 16
"""Pods that are named where they did not answer."""


class StacksOnRequest:
    """Of one agent."""

    def __init__(self, assignment: Assignment, *, ranks: Ranks, link: GangLink, history: History, output: Path) -> None:
        self._pod, self._job_uid = assignment.pod, assignment.job.job_uid
        self._ranks, self._link, self._history = ranks, link, history
        self._folder = output / HISTORY / STACKS
        self._name = ""
        """Of the request that is under way."""
        self._due = self._deadline = math.inf
        self._silent: set[int] = set()
        self._files: list[str] = []
        self._writer: threading.Thread | None = None

    def begin(self, name: str, now: float) -> None:
        """Ask this pod's ranks, and, as rank 0's agent, all other agents whose ranks are of this round."""
        self._name, self._due, self._files = name, now + ANSWER_SECONDS, []
        self._ranks.forget_stacks()
        self._ranks.ask_stacks(())
        if self._pod.rank == 0:
            self._silent, self._deadline = set(self._ranks.pods), now + OTHERS_SECONDS
            self._link.ask(Ask(Topic.STACKS, name))

    def answered(self, answer: Answer) -> None:
        """Another agent has taken those of its pod: `words` is the file's name, empty where there is none."""
        if answer.name == self._name:
            self._silent.discard(answer.rank)
            self._files.append(answer.words)

    def forget(self) -> None:
        """The ranks are gone, and what they were asked for with them."""
        self._name, self._due, self._deadline = "", math.inf, math.inf

    def advance(self, now: float) -> str | None:
        """Read what the ranks wrote, when it is due. As rank 0's agent: what came of it, once, when it is over."""
        if now >= self._due:
            self._due = math.inf
            file = self._keep()
            self._silent.discard(self._pod.rank)
            self._files.append(file)
            self._link.answer(Answer(Topic.STACKS, self._name, file))
        if self._deadline == math.inf or (self._silent and now < self._deadline):
            return None
        self._deadline = math.inf
        pods = len(self._ranks.pods)
        there = f"stacks of the ranks of {pods - len(self._silent)} of {pods} pods"
        files = [file for file in self._files if file]
        lie = "in their logs and in the history"
        if len(files) < len(self._files):
            lie = f"in their logs, of {len(files)} in the history: the others' storage does not answer"
        missing = f"; no answer from pods {_numbers(sorted(self._silent))}" if self._silent else ""
        words = f"{there} are {lie}{missing}"
        self._history.took_stacks(files, f"request {self._name}: {words}")
        return words

    def _keep(self) -> str:
        """Log them, and start to write them; the file's name below the history's folder, empty where that can't be."""
        found = self._ranks.stacks(self._ranks.numbers)
        self._ranks.forget_stacks()  # what a hang shows later is to be its own
        for rank, stacks in found.items():
            told = {"stacks": stacks[-_LOGGED:] or "it did not answer", "request": self._name, "ofRank": rank}
            log.info("stacks of rank %d", rank, extra=told)
        if self._writer and self._writer.is_alive():
            return ""  # the storage hangs: more threads would hang beside it
        name = stacks_name(self._pod.attempt, self._job_uid, self._pod.rank, clock.timestamp())
        text = "\n\n".join(f"rank {rank}:\n{stacks or 'it did not answer'}" for rank, stacks in found.items())
        before = f"{attempt_folder(self._pod.attempt, self._job_uid)}-{self._pod.rank}-*.txt"
        self._writer = threading.Thread(
            target=_write, args=(self._folder, name, text, before), name="stacks-on-request", daemon=True
        )
        self._writer.start()
        return f"{STACKS}/{name}"


def _write(folder: Path, name: str, text: str, before: str) -> None:
    with contextlib.suppress(OSError):  # the log has them; a storage that hangs may well be what they tell of
        if folder.parents[2].is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(f"{text}\n")
            for old in sorted(folder.glob(before))[:-KEPT]:
                old.unlink()


def _numbers(ranks: Sequence[int]) -> str:
    more = f" and {len(ranks) - _NAMED} more" if len(ranks) > _NAMED else ""
    return ", ".join(map(str, ranks[:_NAMED])) + more
