"""What the agent does about its GPUs: it listens to the monitor, and a symptom becomes a checkpoint, or the pod's end.

A fault that takes a GPU out of service ends the ranks at once: each second more is one in which 31 others wait in a
collective. One that needs new processes only may be the echo of another GPU's (XID 74, then 79 on its neighbour): it is
reported at once, and the end waits a moment for what may stand behind it. A warning loses nothing yet, so the ranks save
and go on. What a driver says of ranks that the agent itself has killed is no fault. What a trainer claims by webhooks is no
evidence: the processes are ended for it, and the node is left in peace unless the monitor says the same within a moment.
"""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from typing import TYPE_CHECKING

from oarlock_api.contract.health import GpuVerdict
from oarlock_trainer.agent.gpus.gpu_health import GpuHealth
from oarlock_trainer.agent.webhooks.gpu_fault import GpuFault

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from oarlock_trainer.agent.outcome import Outcome
    from oarlock_trainer.agent.status.status_board import StatusBoard
    from oarlock_trainer.agent.webhooks.webhooks import Webhooks
    from oarlock_trainer.health.pace import GpuPace
    from oarlock_trainer.health.symptom import Symptom
    from oarlock_trainer.runtime.assignment import Assignment

log = logging.getLogger(__name__)

CORROBORATE_SECONDS = 2.5
"""What the monitor gets after a rank blamed a GPU: one that is lost must be found so twice, a second apart."""
ECHO_SECONDS = 1.0
"""What the driver gets to say more after a fault that needs new processes only: its recovery action is read every second."""
_SAVE_AGAIN_SECONDS = 300.0
"""Between two checkpoints that symptoms ask for."""


class GpuGuard:
    """Watches this pod's GPUs. `save` asks the ranks for a checkpoint, `claims` gives what they said against GPUs.

    Only the main thread may use it.
    """

    def __init__(
        self,
        assignment: Assignment,
        environment: Mapping[str, str],
        *,
        board: StatusBoard,
        outcome: Outcome,
        webhooks: Webhooks,
        save: Callable[[], None],
        claims: Callable[[], Sequence[Symptom]] = tuple,
        now: float,
    ) -> None:
        self._health = GpuHealth(assignment, environment, now=now)
        self._board = board
        self._outcome = outcome
        self._webhooks = webhooks
        self._save = save
        self._claims = claims
        self._saved_at = -math.inf
        self._warned = False
        """Whether ranks are to be asked for a checkpoint as soon as there are any."""
        self._waits_until: float | None = None
        self._fresh_until = -math.inf
        """Until then what ends processes ended those of the round before."""

    def judge_by(self, outcome: Outcome, now: float) -> None:
        """Have faults decide this outcome from now on: the ranks of a new round have one of their own."""
        self._outcome, self._waits_until = outcome, None
        self._fresh_until = now + ECHO_SECONDS
        self._health.close_circuit()

    @property
    def descriptor(self) -> int:
        """Readable when the monitor has told something."""
        return self._health.descriptor

    @property
    def pace(self) -> tuple[GpuPace, ...]:
        """How fast the GPUs run, as the monitor has said since ask_pace."""
        return self._health.pace

    def ask_pace(self) -> None:
        """Ask the monitor how fast the GPUs run."""
        self._health.ask_pace()

    def seconds_left(self, now: float) -> float:
        """How long the end is to wait for what a driver may still say; 0 where it need not, or nobody sees the GPUs."""
        if self._waits_until is None or not self._outcome.awaits_gpu or not self._health.watched:
            return 0.0
        return max(self._waits_until - now, 0.0)

    def heed(self, ended: Mapping[int, int], now: float, *, checked: bool, killed: bool = False) -> bool:
        """Listen, and act; whether the pod is to end at once. `ended`: pid -> code of processes that ended meanwhile.

        Until the checks before the start are over (`checked`), what they look at as well is theirs to tell: a GPU that was
        broken before makes the node unfit (87). `killed`: the ranks are, and no others run yet.
        """
        self._health.tend(ended, now)
        over = False
        for symptom in self._health.take() if checked else ():
            if symptom.verdict is GpuVerdict.RESTART_PROCESS and (killed or now < self._fresh_until):
                log.info("%s, as its processes were killed", symptom.summary, extra={"probe": symptom.probe})
                continue
            self._tell(symptom)
            if symptom.verdict is GpuVerdict.HOLD:
                self._board.note(symptom.summary)
                self._warned = True
            elif self._outcome.take_symptom(symptom):
                self._health.open_circuit(symptom)
                over = symptom.verdict is GpuVerdict.REPLACE_NODE
                self._waits_until = now + ECHO_SECONDS
        if self._warned and not killed and self._outcome.verdict is None:
            self._warned = False
            self._save_again(now)
        for claim in self._claims():
            self._hear(claim)
        if self._waits_until is None and self._outcome.awaits_gpu:
            self._waits_until = now + CORROBORATE_SECONDS
        self._board.health(self._health.health)
        return over

    def _hear(self, claim: Symptom) -> None:
        known = {gpu.index: gpu for gpu in self._health.health.gpus}
        symptom = replace(claim, gpu=known.get(claim.gpu.index, claim.gpu)) if claim.gpu else claim
        self._tell(symptom)
        if symptom.verdict is GpuVerdict.HOLD:
            self._board.note(symptom.summary)
        else:
            self._outcome.take_claim(symptom)

    def _tell(self, symptom: Symptom) -> None:
        log.warning("%s", symptom.summary, extra={"probe": symptom.probe, "verdict": symptom.verdict})
        self._webhooks.gpu_fault(_fault_of(symptom))

    def _save_again(self, now: float) -> None:
        if now - self._saved_at >= _SAVE_AGAIN_SECONDS:
            self._saved_at = now
            self._save()


def _fault_of(symptom: Symptom) -> GpuFault:
    return GpuFault(
        verdict=symptom.verdict,
        message=symptom.summary,
        gpu=symptom.gpu,
        xid=symptom.xid,
        evidence=(symptom.evidence,),
        readings=symptom.readings,
    )
