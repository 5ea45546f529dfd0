"""Whether this node's GPUs may be used, for programs that want to ask instead of being ended.

    from oarlock_trainer.health import circuit
    if circuit.read().state == "open":
        save_what_can_be_saved()

SimpleTuner's circuit breaker answers the same question for one process; this one asks the node's agent, which watches the
GPUs for all ranks.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oarlock_api.contract.environment import STATUS_PORT
from oarlock_api.contract.status import MAX_BYTES, parse_status

if TYPE_CHECKING:
    from oarlock_api.contract.report import Gpu

PORT = "OARLOCK_STATUS_PORT"
"""Environment variable of the ranks: where their agent answers."""
_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Circuit:
    """`state` is closed or open; `reason`, `gpu` and `since` (RFC 3339) tell of what opened it, or of a warning."""

    state: str
    reason: str = ""
    gpu: Gpu | None = None
    since: str = ""


def read() -> Circuit:
    """Ask the agent. Raises OSError where none answers within two seconds."""
    import urllib.request  # noqa: PLC0415 - 40 ms that an agent's start need not pay for

    port = os.environ.get(PORT, "")
    address = f"http://127.0.0.1:{port if port.isdecimal() else STATUS_PORT}/status"
    with urllib.request.urlopen(address, timeout=_SECONDS) as answer:
        health = parse_status(answer.read(MAX_BYTES).decode(errors="replace")).health
    return Circuit(health.circuit, health.reason, health.gpu, health.since)
