"""This node's ranks, seen from the agent: the rank host's process, the orders to it, and what comes back.

Only the main thread may use it (see children.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from typing import TYPE_CHECKING

from oarlock_api.contract.log_lines import LogStream
from oarlock_trainer.agent.hangs.flight_recorder import FlightRecorder
from oarlock_trainer.agent.hangs.stacks import Stacks
from oarlock_trainer.agent.ranks import rank_environment
from oarlock_trainer.agent.ranks.accelerate_config import plan_launch
from oarlock_trainer.agent.ranks.output_pipe import OutputPipe
from oarlock_trainer.preflight import driver
from oarlock_trainer.ranks import rank_host
from oarlock_trainer.runtime import channel, children, own_module
from oarlock_trainer.runtime.pipe_lines import PipeLines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from oarlock_trainer.agent.trainer_webhooks.inbox import Inbox
    from oarlock_trainer.health.symptom import Symptom
    from oarlock_trainer.runtime.assignment import Assignment
    from oarlock_trainer.runtime.channel import Message


class LocalRanks:
    """The rank host and its channel; see ranks.Ranks.

    `keep` takes what they print. `environment` is the common one, `program` what each rank runs, `warm` what the host imports
    before, both as MODULE:FUNCTION. Raises ConfigurationError where spec.training can't be told to accelerate.
    """

    name = ""
    inbox: Inbox | None = None
    tells_phases = tells_failures = has_steady_steps = can_check_collective = True

    def __init__(
        self,
        assignment: Assignment,
        environment: Mapping[str, str],
        *,
        program: str,
        warm: str,
        run_directory: Path,
        keep: Mapping[LogStream, Callable[[bytes], None]],
    ) -> None:
        self._assignment, self._environment = assignment, environment
        self._common: dict[str, str] = {}
        self._of_round: dict[str, str] = {}
        self._without: list[str] = []
        self._program, self._warm = program, warm
        self.launch = plan_launch(assignment)
        # Other programs are known to where the job says how long a step may take.
        self.tells_first_step = program == rank_host.PROGRAM or assignment.job.recovery.hang_seconds > 0
        self._stacks = Stacks(assignment.ranks_per_node)
        self._recorder = FlightRecorder(run_directory / "nccl", environment, wanted=not assignment.on_cpu)
        self.host_pid: int | None = None
        self._stdout = OutputPipe(1, keep[LogStream.OUT])
        self._stderr = OutputPipe(2, keep[LogStream.ERR])
        self._orders_read, self._orders = os.pipe()
        self.channel_descriptor, self._tells = os.pipe()
        self._told = PipeLines(self.channel_descriptor, longest=channel.MAX_LINE)  # more is no event of ours

    def load(self) -> None:
        """Start the host, which imports what the ranks need."""
        command = own_module.command(
            "oarlock_trainer.ranks.rank_host",
            *("--control", str(self._orders_read), "--parent", str(os.getpid())),
            *("--program", self._program, "--warm", self._warm),
        )
        self._common = rank_environment.shared(self.launch, self._environment)
        # What the host itself tells, its first rank tells.
        own = rank_environment.of_rank(self._assignment, 0) | {channel.AGENT_FD: str(self._tells)}
        self.host_pid = children.spawn(
            command,
            environment={**self._environment, **self._common, **self._recorder.environment, **own},
            inherit=(self._orders_read, self._tells, *self._stacks.descriptors),
            stdout=self._stdout.descriptor,
            stderr=self._stderr.descriptor,
        )
        self._stdout.close_here()
        self._stderr.close_here()
        os.close(self._orders_read)
        os.close(self._tells)

    @property
    def torch_cuda(self) -> str:
        """Of this image's torch, which ranks share with the agent."""
        return driver.torch_cuda()

    @property
    def last_output(self) -> str:
        """The end of what ranks and host have written to their standard error."""
        return self._stderr.text

    @property
    def numbers(self) -> range:
        """Those of this node."""
        first = self._assignment.first_rank
        return range(first, first + self._assignment.ranks_per_node)

    @property
    def pods(self) -> Sequence[int]:
        """Those of the round."""
        return self._assignment.members or range(self._assignment.job.nodes)

    def be_of_round(self, members: tuple[int, ...]) -> None:
        """Count by the places of these pods. The host's own environment stays that of the gang as it was at first."""
        self._assignment = self._assignment.of_round(members)
        now = rank_environment.shared(plan_launch(self._assignment), self._environment)
        self._of_round = {name: value for name, value in now.items() if value != self._common.get(name)}
        self._without = sorted(self._common.keys() - now.keys() - self._environment.keys())

    def start(self, variables: Mapping[str, str]) -> None:
        """Have the ranks forked. The host must have said that it is ready."""
        ranks = [
            {
                **self._of_round,
                **rank_environment.of_rank(self._assignment, local),
                **self._stacks.environment(local),
                **variables,
            }
            for local in range(len(self.numbers))
        ]
        self._order({"do": "start", "ranks": ranks, "without": self._without})

    def signal(self, number: int) -> None:
        """Send a signal to each rank that still runs."""
        self._order({"do": "signal", "number": number})

    def ask_stacks(self, numbers: Sequence[int]) -> None:
        """Ask by a signal, and NCCL's flight recorders by their pipes."""
        if self.host_pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.host_pid, signal.SIGCONT)  # a stopped host passes no signal on
        self.signal(rank_host.STACKS_SIGNAL)
        self._recorder.ask(numbers)

    def stacks(self, numbers: Iterable[int]) -> dict[int, str]:
        """What each rank has written; empty for one that could not answer."""
        return {number: self._stacks.read(number - self.numbers[0]) for number in numbers}

    def forget_stacks(self) -> None:
        """What comes from now on is told alone."""
        self._stacks.forget()

    def dumps(self) -> list[Path]:
        """The recorders'."""
        return self._recorder.dumps()

    @property
    def dumps_pending(self) -> bool:
        """Of a recorder."""
        return self._recorder.pending

    def kill(self) -> None:
        """End host and ranks now: the kernel kills the ranks with their host."""
        if self.host_pid is not None:
            children.kill(self.host_pid)

    def clear(self) -> None:
        """The host stays, with all that it has imported."""
        self._order({"do": "clear"})

    def forget(self) -> None:
        """Their output, stacks and dumps."""
        self._stdout.forget()
        self._stderr.forget()
        self._stacks.forget()
        self._recorder.forget()

    def received(self) -> list[Message]:
        """Everything told since the last call, in order. Never blocks."""
        return [message for line in self._told.read() if (message := channel.decode(line)) is not None]

    def claims(self) -> list[Symptom]:
        """Nothing: a rank that fails of its GPU ends, and its last words say so."""
        return []

    def ended(self, _code: int) -> bool:
        """Take in that the host ended: its ranks are lost with it, and what they told before is still in the pipe."""
        return False

    def close(self) -> None:
        """Close the pipes; a host that still lives ends. What it and its ranks have written is passed on first."""
        self._stdout.finish()
        self._stderr.finish()
        os.close(self._orders)
        os.close(self.channel_descriptor)

    def _order(self, order: Mapping[str, object]) -> None:
        with contextlib.suppress(BrokenPipeError):  # the host is gone: its end is news of its own
            os.write(self._orders, json.dumps(order).encode() + b"\n")
