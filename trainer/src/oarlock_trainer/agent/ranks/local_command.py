"""The command of spec.custom, one process per node, seen from the agent as if it were the node's first rank.

It starts the node's ranks by itself (accelerate launch, torchrun, simpletuner train) and knows nothing of the agent: no
channel but its webhooks (trainer_webhooks), no signals of ours. So it gets only the signals that any program knows:
SIGTERM asks it to leave, SIGCONT continues it. All its descendants get them at once, because few launchers pass a signal on
and some put their ranks into a session of their own; and once asked it has left only when the last of them has. How it ends
after it was asked to leave is no failure, whatever its code: launchers turn the request into an error.

In each round it is started anew, with the same words and environment but for the round's number.
"""

from __future__ import annotations

import re
import signal
import subprocess
import time
from typing import TYPE_CHECKING

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_api.contract.log_lines import LogStream
from oarlock_trainer.agent.ranks import rank_environment
from oarlock_trainer.agent.ranks.accelerate_config import plain_launch
from oarlock_trainer.agent.ranks.output_pipe import OutputPipe
from oarlock_trainer.agent.ranks.ranks import StartError
from oarlock_trainer.agent.trainer_webhooks.inbox import Inbox
from oarlock_trainer.agent.trainer_webhooks.messages import TrainerMessages
from oarlock_trainer.ranks.rank_host import HostEvent
from oarlock_trainer.runtime import children, clock
from oarlock_trainer.runtime.channel import Event, Message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from oarlock_api.contract.sections import Custom
    from oarlock_trainer.health.symptom import Symptom
    from oarlock_trainer.runtime.assignment import Assignment

_UNDERSTOOD = frozenset({signal.SIGTERM, signal.SIGCONT})
"""Any other signal of the agent's would end a program that has no handler for it."""
_REFERENCE = re.compile(r"\$(\$?)\(([A-Za-z_][A-Za-z0-9_.-]*)\)")


class LocalCommand:
    """The command; see ranks.Ranks. What it tells, and its end, are told as the node's first rank's.

    `keep` takes what it prints.
    """

    name = "the command"
    tells_phases = tells_failures = has_steady_steps = can_check_collective = False
    torch_cuda = ""  # it has a torch of its own, or none

    def __init__(
        self,
        program: Custom,
        assignment: Assignment,
        environment: Mapping[str, str],
        *,
        keep: Mapping[LogStream, Callable[[bytes], None]],
    ) -> None:
        self._program = program
        self._environment = rank_environment.of_command(assignment, environment)
        self._rank = assignment.first_rank
        self.launch = plain_launch(assignment)
        self.numbers = range(self._rank, self._rank + 1)
        self.pods = range(assignment.job.nodes)
        self.tells_first_step = assignment.pod.rank == 0  # the other nodes' commands have no steps to tell of
        self.inbox: Inbox | None = (inbox := Inbox())
        self._told = TrainerMessages(
            inbox, rank=self._rank, attempt=assignment.pod.attempt, now=time.monotonic, stamp=clock.timestamp
        )
        self._stdout = OutputPipe(1, keep[LogStream.OUT])
        self._stderr = OutputPipe(2, keep[LogStream.ERR])
        self._process: subprocess.Popen[bytes] | None = None
        self._asked = self._clearing = False
        self._code: int | None = None
        """How it ended, while what it has started still saves."""
        self._news: list[Message] = []

    @property
    def host_pid(self) -> int | None:
        """The command's own process, until it is reaped: its number may be another's then."""
        return self._process.pid if self._process and self._process.returncode is None else None

    @property
    def channel_descriptor(self) -> int:
        """Readable when its webhooks have told something."""
        return self._told.descriptor

    @property
    def last_output(self) -> str:
        """The end of what it has written to its standard error."""
        return self._stderr.text

    def load(self) -> None:
        """It is ready from the start."""
        self._news.append(Message(HostEvent.READY, self._rank, {}))

    def be_of_round(self, members: tuple[int, ...]) -> None:
        """Nothing: its gang has neither spares nor other sizes, so they are always the same."""

    def start(self, variables: Mapping[str, str]) -> None:
        """Start it, in a session of its own. Raises StartError where the image has no such program or folder."""
        self._clearing = False
        environment = {**self._environment, **variables}
        command = [expanded(word, environment) for word in (*self._program.command, *self._program.args)]
        try:
            self._process = subprocess.Popen(
                command,
                env=environment,
                cwd=self._program.working_dir or None,
                stdin=subprocess.DEVNULL,
                stdout=self._stdout.descriptor,
                stderr=self._stderr.descriptor,
                start_new_session=True,
            )
        except OSError as error:
            raise StartError(_why_not(error, program=command[0], folder=self._program.working_dir)) from error
        self._news.append(Message(HostEvent.STARTED, self._rank, {"pid": self._process.pid}))

    def signal(self, number: int) -> None:
        """Pass a signal that any program knows on to it and all that descends from it."""
        if number in _UNDERSTOOD and self._process:
            self._asked = self._asked or number == signal.SIGTERM
            children.signal_others(number)

    def ask_stacks(self, numbers: Sequence[int]) -> None:
        """Nothing: it knows no such signal."""

    def stacks(self, numbers: Iterable[int]) -> dict[int, str]:  # noqa: ARG002
        """None."""
        return {}

    def forget_stacks(self) -> None:
        """There are none."""

    def dumps(self) -> list[Path]:
        """None."""
        return []

    @property
    def dumps_pending(self) -> bool:
        """Never."""
        return False

    def kill(self) -> None:
        """End its process group now; what it has put into groups of its own, the agent inherits and ends."""
        if (pid := self.host_pid) is not None:
            children.kill(pid)

    def clear(self) -> None:
        """Kill it, with its process group."""
        self._clearing = True
        if self.host_pid is None:
            self._tell_cleared()
        self.kill()

    def forget(self) -> None:
        """What it has written, and what it told by webhooks."""
        self._stdout.forget()
        self._stderr.forget()
        self._told.forget()

    def received(self) -> list[Message]:
        """That it is ready, that it was started, what it tells by webhooks, and how it ended."""
        if self._code is not None and not children.others_live():
            self._tell_end(self._code)
        news, self._news = self._news, []
        return [*self._told.received(), *news]

    def claims(self) -> list[Symptom]:
        """The GPUs that its webhooks blame."""
        return self._told.claims()

    def ended(self, code: int) -> bool:
        """Take in how it ended; asked to leave, it has done so once nothing is left that descends from it."""
        if self._process:
            self._process.returncode = code  # reaped elsewhere
        if self._clearing:
            self._tell_cleared()
            return True
        self._code = code
        if not self._asked:
            self._tell_end(code)
        return True

    def close(self) -> None:
        """Pass on what it has written."""
        self._stdout.finish()
        self._stderr.finish()

    def _tell_cleared(self) -> None:
        self._news.append(Message(HostEvent.CLEARED, self._rank, {}))

    def _tell_end(self, code: int) -> None:
        self._code = None
        if self._asked:
            how = f"with code {code}" if code >= 0 else f"by {signal.Signals(-code).name}"
            left = {"code": int(ExitCode.LEFT_ON_REQUEST), "summary": f"left on request; it ended {how}"}
            self._news.append(Message(Event.FAILURE, self._rank, left))
        self._news.append(Message(HostEvent.ENDED, self._rank, {"code": code}))


def expanded(word: str, environment: Mapping[str, str]) -> str:
    """`$(NAME)` as Kubernetes replaces it in a container's command: unknown names stay, `$$(NAME)` is `$(NAME)`."""

    def value(found: re.Match[str]) -> str:
        return found[0][1:] if found[1] else environment.get(found[2], found[0])

    return _REFERENCE.sub(value, word)


def _why_not(error: OSError, *, program: str, folder: str | None) -> str:
    if folder and error.filename == folder:
        return f"spec.custom.workingDir: {folder}: {error.strerror} in this image"
    return f"spec.custom.command: {program!r} can't be started in this image: {error.strerror}"
