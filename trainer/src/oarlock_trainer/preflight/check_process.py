"""Checks in a child process, so that a dead mount or a broken driver can't hang or crash the agent.

A check that says nothing before its process ends, or before the time is up, has a finding all the same: what its
silence means. Only the main thread may use this (see children.py).
"""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_api.contract.status import CheckResult
from oarlock_trainer.preflight.finding import Check, Finding, parse_line
from oarlock_trainer.runtime import children, own_module
from oarlock_trainer.runtime.pipe_lines import PipeLines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LONGEST_LINE = 1 << 20
"""Bytes; a finding has some thousands."""
_SILENT = {
    Check.STORAGE: (
        ExitCode.STORAGE,
        "output: {directory} {what}: its server or the network to it is down or very slow",
    ),
    Check.CLOCK: (ExitCode.DONE, "clock: {directory} {what}, so it can't tell whether the nodes' clocks agree"),
    Check.MEMORY: (
        ExitCode.DONE,
        "memory: {directory} {what}, so how large the state is is known once the model is loaded",
    ),
    Check.NETWORK: (ExitCode.DONE, "network: the look at InfiniBand {what}"),
    # Silence is no evidence against a GPU: a container that lost its devices and a driver that is being replaced say
    # nothing either. So no GPU is named, and the node is avoided but not taken from others.
    Check.GPUS: (
        ExitCode.PREFLIGHT,
        "GPUs: NVML {what} on node {node}: try nvidia-smi there. If that fails too, the driver or the node needs a restart",
    ),
}
"""Check -> the code that its silence ends the pod with, and the words."""


class CheckProcess:
    """One process and the checks that it was ordered to do, in turn."""

    def __init__(self, orders: Sequence[Mapping[str, Any]], *, environment: Mapping[str, str], now: float) -> None:
        self._waiting = {Check(order["check"]): order for order in orders}
        self._began = now
        told, child_tells = os.pipe()
        self._told = PipeLines(told, longest=_LONGEST_LINE)
        command = own_module.command("oarlock_trainer.preflight.child", json.dumps(list(orders)), str(os.getpid()))
        try:
            self.pid = children.spawn(command, environment=environment, stdout=child_tells)
        finally:
            os.close(child_tells)

    @property
    def over(self) -> bool:
        """Whether each check has its finding."""
        return not self._waiting

    def heard(self) -> list[Finding]:
        """What was found since the last call. Never blocks."""
        findings = [
            finding for line in self._told.read() if (finding := parse_line(line)) and finding.check in self._waiting
        ]
        for finding in findings:
            del self._waiting[Check(finding.check)]
        return findings

    def ended(self, code: int, now: float) -> list[Finding]:
        """Take in that the process ended with this code (or was killed by minus this signal)."""
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        return [*self.heard(), *self._give_up(f"did not answer (its check {how})", now)]

    def give_up(self, now: float, *, bound: float) -> list[Finding]:
        """Kill it. The process may be beyond the reach of any signal: it is left behind."""
        children.kill(self.pid)
        words = f"did not answer within {bound:g} s (spec.preflight.timeoutSeconds)"
        return [*self.heard(), *self._give_up(words, now)]

    def _give_up(self, what: str, now: float) -> list[Finding]:
        findings = [_silence(order, what, round((now - self._began) * 1000)) for order in self._waiting.values()]
        self._waiting.clear()
        return findings


def _silence(order: Mapping[str, Any], what: str, milliseconds: int) -> Finding:
    code, words = _SILENT[Check(order["check"])]
    return Finding(
        check=order["check"],
        result=CheckResult.FAILED if code else CheckResult.NOT_SUPPORTED,
        detail=words.format(what=what, node=order["node"] or "unknown", directory=order.get("directory")),
        code=code,
        milliseconds=milliseconds,
    )
