"""The command of spec.custom, one process per node, seen from the agent as if it were the node's first rank.

It starts the node's ranks by itself (accelerate launch, torchrun, simpletuner train) and knows nothing of the agent: no
channel but webhooks (hearsay), no signals of ours. So it gets those alone that any program knows: SIGTERM asks it to leave,
SIGCONT continues it. All that descends from it is told at once, because few launchers pass a signal on and some put their
ranks into a session of their own; and once asked it has left only when the last of them has. How it ends after it was
asked to leave is no failure, whatever its code: launchers turn a wish into an error.
"""

from __future__ import annotations

import re
import signal
import subprocess
from typing import TYPE_CHECKING

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_trainer.agent.ranks.ranks import StartError
from oarlock_trainer.agent.ranks.stderr_tail import StderrTail
from oarlock_trainer.ranks.rank_host import HostEvent
from oarlock_trainer.runtime import children
from oarlock_trainer.runtime.channel import Event, Message

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from oarlock_api.contract.job_file import CustomProgram
    from oarlock_trainer.agent.trainer_webhooks.messages import Hearsay

_UNDERSTOOD = frozenset({signal.SIGTERM, signal.SIGCONT})
"""Any other signal of the agent's would end a program that has no handler for it."""
_REFERENCE = re.compile(r"\$(\$?)\(([A-Za-z_][A-Za-z0-9_.-]*)\)")


class LocalCommand:
    """The command, and `rank`, which its words and its end are told as."""

    def __init__(self, program: CustomProgram, *, environment: Mapping[str, str], rank: int, hearsay: Hearsay) -> None:
        self._program = program
        self._hearsay = hearsay
        self._environment = environment
        self._rank = rank
        self._stderr = StderrTail()
        self._process: subprocess.Popen[bytes] | None = None
        self._asked = False
        self._code: int | None = None
        """How it ended, while what it has started still saves."""
        self._news = [Message(HostEvent.READY, rank, {})]

    @property
    def host_pid(self) -> int | None:
        """The command's own process."""
        return self._process.pid if self._process else None

    @property
    def channel_descriptor(self) -> int:
        """Readable when its webhooks have told something."""
        return self._hearsay.descriptor

    @property
    def last_output(self) -> str:
        """The end of what it has written to its standard error."""
        return self._stderr.text

    def start(self, environments: Sequence[Mapping[str, str]]) -> None:
        """Start it, in a session of its own. Raises StartError where the image has no such program or folder."""
        environment = {**self._environment, **environments[0]}
        command = [expanded(word, environment) for word in (*self._program.command, *self._program.args)]
        folder = self._program.working_dir
        try:
            self._process = subprocess.Popen(
                command,
                env=environment,
                cwd=folder or None,
                stdin=subprocess.DEVNULL,
                stderr=self._stderr.descriptor,
                start_new_session=True,
            )
        except OSError as error:
            raise StartError(_why_not(error, program=command[0], folder=folder)) from error
        finally:
            self._stderr.close_here()
        self._news.append(Message(HostEvent.STARTED, self._rank, {"pid": self._process.pid}))

    def signal(self, number: int) -> None:
        """Pass a signal that any program knows on to it and all that descends from it."""
        if number in _UNDERSTOOD and self._process:
            self._asked = self._asked or number == signal.SIGTERM
            children.signal_others(number)

    def rouse(self) -> None:
        """Nothing: it hears SIGCONT by itself."""

    def kill(self) -> None:
        """End its process group now; what it has put into groups of its own, the agent inherits and ends."""
        if self._process:
            children.kill(self._process.pid)

    def received(self) -> list[Message]:
        """That it is ready, that it was started, what it tells by webhooks, and how it ended."""
        if self._code is not None and not children.others_live():
            self._tell_end(self._code)
        news, self._news = self._news, []
        return [*self._hearsay.received(), *news]

    def ended(self, code: int) -> bool:
        """Take in how it ended; asked to leave, it has done so once nothing is left that descends from it."""
        if self._process:
            self._process.returncode = code  # reaped elsewhere
        self._code = code
        if not self._asked:
            self._tell_end(code)
        return True

    def close(self) -> None:
        """Pass on what it has written."""
        self._stderr.finish()

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


def _why_not(error: OSError, *, program: str, folder: str) -> str:
    if folder and error.filename == folder:
        return f"spec.custom.workingDir: {folder}: {error.strerror} in this image"
    return f"spec.custom.command: {program!r} can't be started in this image: {error.strerror}"
