"""What the agent does about hangs: it watches its ranks, and when they hang it gathers why before they are killed.

The order is fixed: the verdict comes first, from what is known without asking anybody; then stacks and flight recorders
are asked for, by signals and pipes that never block; a moment later the verdict is told again with what they said, and
everything is kept below the output by a thread that nobody has to wait for. The pod's log has the stacks as well: the
output's storage may be what hangs.

Where ranks start anew in their pods, a hang that another node found ends these ranks, too: they are asked just so, before.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import signal
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_api.contract.history import HISTORY, STACKS, stacks_name
from oarlock_api.contract.wire import integer
from oarlock_trainer.agent.hangs.hang import Watch
from oarlock_trainer.agent.hangs.hang_verdict import Seen, verdict_of
from oarlock_trainer.agent.hangs.stacks import STOPPED, explaining_state, top_frame
from oarlock_trainer.agent.verdict import Verdict
from oarlock_trainer.ranks.rank_host import HostEvent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oarlock_trainer.agent.hangs.hang import Hang, Starts
    from oarlock_trainer.agent.ranks.ranks import Ranks
    from oarlock_trainer.runtime.assignment import Pod
    from oarlock_trainer.runtime.channel import Message

log = logging.getLogger(__name__)

ANSWER_SECONDS = 1.5
"""What ranks get to answer: faulthandler takes milliseconds, torch looks into its pipe once a second. Stopped ranks stay
so meanwhile: awake, they step on, and the agents of other nodes, which look once a second, would not see the hang. Where
ranks start anew in their pods, each is told of it, and nobody waits for longer than all have answered."""
LOOK_SECONDS = 0.02
"""Between two looks whether they have."""
WAKING_SECONDS = 0.5
"""What stopped ranks get to answer once they are continued."""
KEEP_SECONDS = 2.0
"""What keeping gets: text of some kilobytes and dumps of some megabytes, on storage that works."""
_LOGGED = 8192
_keeping = threading.Lock()
"""One hang after the other, also where rounds follow each other faster than the storage takes them."""


class HangGuard:
    """Watches the ranks, from before they start: imports can hang too. Only the main thread may use it."""

    def __init__(
        self,
        pod: Pod,
        ranks: Ranks,
        *,
        job_uid: str,
        hang_seconds: int,
        now: float,
        starts: Starts | None = None,
        from_memory: bool = False,
    ) -> None:
        """`starts` and `from_memory` are the Watch's."""
        self._pod, self._ranks, self._job_uid = pod, ranks, job_uid
        self._watch: Watch | None = None
        if hang_seconds or ranks.has_steady_steps:
            self._watch = Watch(
                ranks.numbers,
                hang_seconds=hang_seconds,
                awaits_first_step=ranks.tells_first_step,
                now=now,
                starts=starts,
                from_memory=from_memory,
            )
        self._hang: Hang | None = None
        self._woken = False
        self.joined = False
        """Whether it is another node's hang, and says nothing of these ranks."""
        self._answer: tuple[float, object] | None = None
        self._pids: dict[int, int] = {}
        self._states: dict[int, str] = {}

    @property
    def allowed(self) -> float | None:
        """Seconds that may pass without progress now, None where nothing is judged."""
        return self._watch.allowed if self._watch else None

    @property
    def silent(self) -> float | None:
        """Seconds without a sign of the rank that would be overdue first, None where nothing is judged."""
        standing = self._watch.stand() if self._watch else None
        return round(standing.overdue.silent, 3) if standing else None

    @property
    def hung(self) -> bool:
        """Whether the ranks were found hanging: what they tell from then on is that they were shaken awake."""
        return self._hang is not None

    def stand_down(self) -> None:
        """Judge no more: ranks that were asked to leave are bounded by their grace time."""
        self._watch = None

    def advance(self, now: float) -> None:
        """Let time pass, before the ranks are heard."""
        if self._watch:
            self._watch.advance(now)

    def hear(self, message: Message) -> None:
        """Take in what a rank or the host tells."""
        if self._watch is None:
            return
        if message.event == HostEvent.ENDED:
            self._watch.ended(message.rank)
            return
        if message.event == HostEvent.STARTED and (pid := integer(message.fields.get("pid"))):
            self._pids[message.rank] = pid
            if self._hang:  # a host that was stopped before it told: it is awake now, its ranks are not
                self._states[message.rank] = explaining_state(pid)
        self._watch.take(message)

    def judge(self) -> Verdict | None:
        """The verdict over a hang, if the ranks are in one; for the first time, without what only they can tell."""
        if self._watch is None or (hang := self._watch.hang()) is None:
            return None
        self._take(hang)
        return verdict_of(hang, {rank: Seen(state=state) for rank, state in self._states.items()})

    def join(self) -> bool:
        """Another node's ranks hang, and these are to end with them; whether they can be asked where they stand."""
        if self._watch is None or (hang := self._watch.stand()) is None:
            return False
        self._take(hang)
        self.joined = True
        return True

    def _take(self, hang: Hang) -> None:
        self._hang = hang
        self._states = {one.rank: explaining_state(self._pids.get(one.rank)) for one in hang.ranks}

    def ask(self) -> None:
        """Have the ranks say where they stand, as far as they can."""
        self._ranks.forget_stacks()  # whoever asked for them before got an answer, or it came too late for him
        self._ranks.ask_stacks([standing.rank for standing in self._hang.ranks] if self._hang else [])

    def answered(self, now: float) -> bool:
        """Whether all that can answer have: a stopped rank can once it is awake, one that waits in the kernel never."""
        written = self._written()
        able = [rank for rank in written if not self._states.get(rank) or (self._woken and self._is_stopped(rank))]
        if not all(written[rank] for rank in able) or self._ranks.dumps_pending:
            return False
        # Whoever is still writing has written more by the next look.
        said = written, [path.stat().st_size for path in self._ranks.dumps()]
        if self._answer is None or self._answer[1] != said:
            self._answer = now, said
        return now - self._answer[0] >= LOOK_SECONDS

    def wake(self) -> bool:
        """Continue stopped ranks, so that they answer too; False where that was done before, or none is stopped."""
        if self._woken or not any(map(self._is_stopped, self._states)):
            return False
        self._woken = True
        self._ranks.signal(signal.SIGCONT)
        return True

    def answer(self) -> Verdict | None:
        """The verdict with what the ranks have answered since, also told in the log; None where there was no hang."""
        if self._hang is None:
            return None
        seen = {rank: Seen(state=state) for rank, state in self._states.items()}
        for rank, stacks in self._written().items():
            seen[rank] = Seen(state=self._states.get(rank, ""), frame=top_frame(stacks))
            log.error("stacks of rank %d", rank, extra={"stacks": stacks[-_LOGGED:] or "it did not answer"})
        return self._stuck(seen) if self.joined else verdict_of(self._hang, seen)

    def _stuck(self, seen: Mapping[int, Seen]) -> Verdict | None:
        """The first rank whose state explains why others wait for it, if there is one."""
        for rank, one in sorted(seen.items()):
            if one.state:
                words = f"rank {rank} hangs: it is {one.state}" + (f", in {one.frame}" if one.frame else "")
                return Verdict(code=ExitCode.HANG, summary=words, first_error_rank=rank)
        return None

    def keep(self, output: Path, *, at: str) -> tuple[threading.Thread, str]:
        """Start to keep stacks and dumps in the history below the output; joining is up to the caller.

        They are this hang's: what the next round's ranks write, or forget, does not touch them.
        The second value is the text's name below the history's folder; dumps lie beside it. `at` is RFC 3339.
        """
        name = stacks_name(self._pod.attempt, self._job_uid, self._pod.rank, at)
        text = "\n\n".join(f"rank {rank}:\n{stacks or 'it did not answer'}" for rank, stacks in self._written().items())
        thread = threading.Thread(
            target=_keep,
            args=(output, output / HISTORY / STACKS / name, text, _set_aside(self._ranks.dumps())),
            name="hang-evidence",
            daemon=True,
        )
        thread.start()
        return thread, f"{STACKS}/{name}"

    def _is_stopped(self, rank: int) -> bool:
        return self._states.get(rank) == STOPPED

    def _written(self) -> dict[int, str]:
        return self._ranks.stacks(standing.rank for standing in self._hang.ranks) if self._hang else {}


def _set_aside(dumps: list[Path]) -> list[Path]:
    """Move dumps into a folder of their own beside them; none of them where that fails."""
    if not dumps:
        return []
    try:
        folder = Path(tempfile.mkdtemp(prefix="hang-", dir=dumps[0].parent))
        return [dump.rename(folder / dump.name) for dump in dumps]
    except OSError as error:
        log.warning("the flight recorders' dumps can't be kept: %s", error)
        return []


def _keep(output: Path, path: Path, text: str, dumps: list[Path]) -> None:
    # The log has the stacks; a storage that fails may well be what they tell of.
    with _keeping, contextlib.suppress(OSError):
        if output.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")
            for dump in dumps:
                shutil.copyfile(dump, path.with_name(f"{path.stem}.{dump.name}"))
    for dump in dumps[:1]:
        shutil.rmtree(dump.parent, ignore_errors=True)
