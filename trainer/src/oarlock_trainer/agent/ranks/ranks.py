"""What the agent's loop knows of the processes that train: the built-in trainer's ranks, or the command of spec.custom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from oarlock_trainer.runtime.channel import Message


class StartError(Exception):
    """They cannot be started, and never could. The message is a sentence that says what to mend."""


class Ranks(Protocol):
    """Only the main thread may use it (see children.py)."""

    @property
    def host_pid(self) -> int | None:
        """The one child of the agent that all of them hang on; None while it is not started."""

    @property
    def channel_descriptor(self) -> int | None:
        """Readable when something was told; None where nobody has a channel to tell it on."""

    @property
    def last_output(self) -> str:
        """The end of what they have written to their standard error."""

    def start(self, environments: Sequence[Mapping[str, str]]) -> None:
        """Start one process for each environment, which is what it has beyond the common one. Raises StartError."""

    def signal(self, number: int) -> None:
        """Send a signal to each that still runs and may be sent it."""

    def rouse(self) -> None:
        """Continue a stopped host, without which none of them hears a signal."""

    def kill(self) -> None:
        """End all now."""

    def received(self) -> list[Message]:
        """Everything told since the last call, in order. Never blocks."""

    def ended(self, code: int) -> bool:
        """Take in that `host_pid` ended with this code; whether `received` tells what that means. If not, all are lost."""

    def close(self) -> None:
        """Pass on what they have written, and close the pipes."""
