"""The processes that train, as the agent's loop knows them: the built-in trainer's ranks, or the command of spec.custom.

Which of the two a job has is asked once (parts.py). What they differ in is told by this interface, and by nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from oarlock_trainer.agent.ranks.accelerate_config import Launch
    from oarlock_trainer.agent.trainer_webhooks.inbox import Inbox
    from oarlock_trainer.health.symptom import Symptom
    from oarlock_trainer.runtime.channel import Message


class StartError(Exception):
    """They cannot be started, and never could. The message is a sentence that says what to mend."""


class Ranks(Protocol):
    """Only the main thread may use it (see children.py)."""

    launch: Launch
    """What accelerate.yaml says of them."""
    name: str
    """What a verdict calls the process that it rests on; empty: by its rank."""
    inbox: Inbox | None
    """Where its webhooks go; None where it posts none."""
    tells_phases: bool
    """Whether all of its phases are known, so that nothing can be lost while it is still Starting."""
    tells_failures: bool
    """Whether it says by itself why it fails; if not, its output is searched for that."""
    tells_first_step: bool
    """Whether it is certain to tell of a first step, so that this one can be overdue."""
    has_steady_steps: bool
    """Whether a hang can be learned from its steps; if not, only a job's hangSeconds says what one is."""
    can_check_collective: bool
    """Whether it does the collective check of spec.preflight."""

    @property
    def numbers(self) -> range:
        """Global ranks that the agent's own processes stand for in their round: a command stands for the pod's first."""

    @property
    def pods(self) -> Sequence[int]:
        """The pods of their round, by place."""

    @property
    def torch_cuda(self) -> str:
        """The CUDA that its torch needs, such as `13.0`; empty where that is not known."""

    @property
    def host_pid(self) -> int | None:
        """The one child of the agent that all of them hang on; None while it is not started."""

    @property
    def channel_descriptor(self) -> int:
        """Readable when something was told."""

    @property
    def last_output(self) -> str:
        """The end of what they have written to their standard error."""

    def load(self) -> None:
        """Begin with what comes before their start, such as imports. HostEvent.READY says when that is done."""

    def be_of_round(self, members: tuple[int, ...]) -> None:
        """Know the pods of the round that starts next by place, this one among them; else they are 0..nodes-1."""

    def start(self, variables: Mapping[str, str]) -> None:
        """Start them, each with these variables beyond its own. Raises StartError."""

    def signal(self, number: int) -> None:
        """Send a signal to each that still runs and may be sent it."""

    def ask_stacks(self, numbers: Sequence[int]) -> None:
        """Have these ranks write their stacks and dumps, as far as they can. A stopped one answers once it is continued."""

    def stacks(self, numbers: Iterable[int]) -> dict[int, str]:
        """What each of these ranks has written since; nothing of those that can't be asked."""

    def forget_stacks(self) -> None:
        """Have `stacks` tell of what is written from now on."""

    def dumps(self) -> list[Path]:
        """The files that they have written since."""

    @property
    def dumps_pending(self) -> bool:
        """Whether a file is still awaited of one that was asked."""

    def kill(self) -> None:
        """End all now."""

    def clear(self) -> None:
        """End those that are left; HostEvent.CLEARED says when that is done. Then `forget`, and `start` anew.

        What they leave behind, in groups or sessions of their own, the agent ends.
        """

    def forget(self) -> None:
        """Know nothing any more of what they have told and written until now."""

    def received(self) -> list[Message]:
        """Everything told since the last call, in order. Never blocks."""

    def claims(self) -> list[Symptom]:
        """What `received` has heard against GPUs since the last call."""

    def ended(self, code: int) -> bool:
        """Take in that `host_pid` ended with this code; whether `received` tells what that means. If not, all are lost."""

    def close(self) -> None:
        """Pass on what they have written, and close the pipes."""
