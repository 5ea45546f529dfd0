"""This node's ranks, seen from the agent: the rank host's process, the orders to it, and what comes back.

Only the main thread may use it (see children.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from typing import TYPE_CHECKING

from oarlock_trainer.agent.ranks.stderr_tail import StderrTail
from oarlock_trainer.runtime import channel, children, own_module
from oarlock_trainer.runtime.pipe_lines import PipeLines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from oarlock_trainer.runtime.channel import Message


class LocalRanks:
    """The rank host and its channel. `channel_descriptor` is readable when a rank or the host has told something.

    `inherit` are descriptors that host and ranks get under their own numbers.
    """

    def __init__(self, *, environment: Mapping[str, str], program: str, warm: str, inherit: Sequence[int] = ()) -> None:
        orders_read, self._orders = os.pipe()
        self.channel_descriptor, told = os.pipe()
        self._told = PipeLines(self.channel_descriptor, longest=channel.MAX_LINE)  # more is no event of ours
        command = own_module.command(
            "oarlock_trainer.ranks.rank_host",
            *("--control", str(orders_read), "--parent", str(os.getpid())),
            *("--program", program, "--warm", warm),
        )
        self._stderr = StderrTail()
        self.host_pid = children.spawn(
            command,
            environment={**environment, channel.AGENT_FD: str(told)},
            inherit=(orders_read, told, *inherit),
            stderr=self._stderr.descriptor,
        )
        self._stderr.close_here()
        os.close(orders_read)
        os.close(told)

    @property
    def last_output(self) -> str:
        """The end of what ranks and host have written to their standard error."""
        return self._stderr.text

    def start(self, environments: Sequence[Mapping[str, str]]) -> None:
        """Have one rank forked for each environment. The host must have said that it is ready."""
        self._order({"do": "start", "ranks": list(environments)})

    def signal(self, number: int) -> None:
        """Send a signal to each rank that still runs."""
        self._order({"do": "signal", "number": number})

    def rouse(self) -> None:
        """Continue a stopped host: else none of them hears a signal."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.host_pid, signal.SIGCONT)

    def kill(self) -> None:
        """End host and ranks now: the kernel kills the ranks with their host."""
        children.kill(self.host_pid)

    def received(self) -> list[Message]:
        """Everything told since the last call, in order. Never blocks."""
        return [message for line in self._told.read() if (message := channel.decode(line)) is not None]

    def ended(self, _code: int) -> bool:
        """Take in that the host ended: its ranks are lost with it, and what they told before is still in the pipe."""
        return False

    def close(self) -> None:
        """Close the pipes; a host that still lives ends. What it and its ranks have written is passed on first."""
        self._stderr.finish()
        os.close(self._orders)
        os.close(self.channel_descriptor)

    def _order(self, order: Mapping[str, object]) -> None:
        with contextlib.suppress(BrokenPipeError):  # the host is gone: its end is news of its own
            os.write(self._orders, json.dumps(order).encode() + b"\n")
