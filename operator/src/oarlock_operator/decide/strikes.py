"""Strikes: a GPU that has restarted a gang once is not blamed; one that does it twice within a day is.

XIDs 13 and 31 are mostly the program's own, a contained memory error is contained: so the first one costs a restart and no
node. Which GPU it was is remembered by its UUID, in the job's status and, where nodes may be written, on the node, so that
the next job's first is its second. The two in a day are NVSentinel's rule for 13 and 31 on one GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from oarlock_api.contract.health import GpuVerdict
from oarlock_api.history import Strike
from oarlock_api.recovery import CordonPolicy
from oarlock_operator.decide.draft import Draft
from oarlock_operator.faults.classify import Avoid, Fault
from oarlock_operator.observation import Observation
from oarlock_operator.plan import NoteStrike

WINDOW = timedelta(hours=24)
TOO_MANY = 2
LIMIT = 32


def count(o: Observation, draft: Draft, number: int, faults: Sequence[Fault]) -> list[Fault]:
    """Write the strikes of attempt `number` down, once each; faults of GPUs that are out speak against their nodes."""
    return [_counted(o, draft, fault, number) for fault in faults]


@dataclass(frozen=True, slots=True)
class _Struck:
    """What is known of a GPU from before."""

    count: int
    last: datetime | None
    attempt: int | None = None


def _counted(o: Observation, draft: Draft, fault: Fault, number: int) -> Fault:
    report = fault.report
    uuid = report.gpu.uuid if report and report.gpu and report.proven else ""
    # A rule of the job's own has decided already; and what is blamed at once needs no counting.
    if not uuid or fault.verdict is not GpuVerdict.RESTART_PROCESS or fault.rule:
        return fault
    known = _known(o, draft, fault.pod.node, uuid)
    if known.last is None or known.attempt != number:
        known = _Struck(known.count + 1, o.now, number)
        strike = Strike(gpu_uuid=uuid, count=known.count, last_time=o.now, last_attempt=number)
        others = [one for one in draft.status.strikes if one.gpu_uuid != uuid]
        draft.set(strikes=tuple([*others, strike][-LIMIT:]))
    if o.defaults.may_cordon and known.last and o.spec.recovery.cordon is CordonPolicy.AUTO:
        draft.act(NoteStrike(fault.pod.node, uuid, known.last))
    if known.count < TOO_MANY:
        return fault
    words = f"{fault.message}; time {known.count} within {WINDOW.total_seconds() / 3600:.0f} h for this GPU"
    return replace(fault, message=words, avoid=Avoid.STRICTLY, cordon=True)


def _known(o: Observation, draft: Draft, node: str, uuid: str) -> _Struck:
    """Strikes within the window: the job's own memory, or the node's where that is longer."""
    own = [one for one in draft.status.strikes if one.gpu_uuid == uuid]
    seen = o.nodes.get(node)
    times = sorted(strike.time for strike in seen.strikes if strike.gpu_uuid == uuid) if seen else []
    times = [time for time in times if timedelta() <= o.now - time < WINDOW]
    known = _Struck(len(times), times[-1] if times else None)
    for one in own:
        if one.last_time is not None and o.now - one.last_time < WINDOW and one.count >= known.count:
            known = _Struck(one.count, one.last_time, one.last_attempt)
    return known
