"""Repeated GPU faults: a GPU that has restarted a gang once is not blamed; one that does it twice within a day may be.

Whether it is the GPU or the program shows in who else was struck. Two GPUs at the end of one attempt, or of one round, or one
rank on one GPU after the other, are the program's: no node is avoided or cordoned for them, and nobody else hears of them.
XIDs that programs mostly cause count against a node only where jobs of different names met them on one GPU; a contained
memory error counts twice in one job.

So strikes are judged once all pods of the attempt have had their say; of a round inside living pods, rank 0's agent says
at once what it has heard from all. A GPU is remembered by its UUID, in the job's status and, where nodes may be written, on
the node. The two in a day are NVSentinel's rule for 13 and 31 on one GPU.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_api.contract.health import GpuVerdict
from oarlock_api.contract.rounds import RoundEnd
from oarlock_api.history import RecoveryStage, Strike
from oarlock_api.recovery import CordonPolicy
from oarlock_operator.decide import brakes
from oarlock_operator.decide.draft import Draft
from oarlock_operator.faults.classify import Avoid, Fault
from oarlock_operator.model.observation import Job, Observation, gang_size, standing_by
from oarlock_operator.model.observed_nodes import NodeStrike
from oarlock_operator.model.plan import NoteStrike

WINDOW = timedelta(hours=24)
TOO_MANY = 2
LIMIT = 32
_NOTED_AGAIN = timedelta(minutes=1)
"""For so long a node is told once more of a round's strike: it may have been busy, or the operator killed."""
MOSTLY_THE_PROGRAMS = frozenset({13, 31, 32, 43, 45, 68, 69, 137})
"""XIDs of which NVIDIA's catalog names the application first: bad addresses, bad commands, a process that was ended."""


def count(o: Observation, draft: Draft, number: int, faults: Sequence[Fault], *, heard: bool) -> list[Fault]:
    """Write the strikes of attempt `number` down, once each; faults of GPUs that are out speak against their nodes.

    `heard`: whether all of its pods have had their say; before that nothing is counted.
    """
    struck = [fault for fault in faults if _is_strike(o, fault)]
    if not struck or not heard:
        return list(faults)
    # Of an attempt that has ended it is not known any more who stood by: all are needed.
    needed = set(range(gang_size(o.spec, o.job.status, number))) - standing_by(o.job.status, number)
    if needed - {pod.rank for pod in o.pods if pod.attempt == number}:
        # A pod went while nobody looked, and may have met the same: what programs mostly cause is held against no GPU.
        struck = [fault for fault in struck if fault.xid not in MOSTLY_THE_PROGRAMS]
    for fault in struck:
        _remember(o, draft, fault, number)
    shared = len(_survivors(o, number)) > 1
    return [_judged(o, draft, fault, shared=shared) if fault in struck else fault for fault in faults]


def count_round(o: Observation, draft: Draft, number: int, fault: Fault, end: RoundEnd) -> Fault:
    """The same for a round of attempt `number` that ended with this fault: all pods live, and are heard through rank 0's."""
    if not _is_strike(o, fault):
        return fault
    _remember(o, draft, fault, number, in_round=end.number)
    return _judged(o, draft, fault, shared=end.other_gpus)


def _survivors(o: Observation, number: int) -> set[str]:
    """GPUs of the attempt of which the driver spoke and that survived: also those of pods that were evicted meanwhile."""
    return {
        report.gpu.uuid
        for pod in o.of_attempt(number)
        if (report := pod.report) and pod.ending and pod.ending.code == ExitCode.RESTART_PROCESS
        if report.proven and report.gpu and report.gpu.uuid
    }


def _is_strike(o: Observation, fault: Fault) -> bool:
    """A driver's word of a GPU that survived. A rule of the job's own has decided already; what is blamed needs no count."""
    known = fault.pod.report is not None and fault.pod.report.proven and bool(_uuid(fault))
    return known and fault.verdict is GpuVerdict.RESTART_PROCESS and not fault.rule and o.spec.gpus_per_node > 0


def _remember(o: Observation, draft: Draft, fault: Fault, number: int, *, in_round: int | None = None) -> None:
    before = next((one for one in draft.status.strikes if one.gpu_uuid == _uuid(fault)), None)
    if before is not None and (before.last_attempt, before.last_round) == (number, in_round):
        return
    fresh = before if before and before.last_time and o.now - before.last_time < WINDOW else None
    strike = Strike(
        gpu_uuid=_uuid(fault),
        xid=fault.xid,
        rank=fault.pod.rank,
        count=(fresh.count if fresh else 0) + 1,
        hardware_count=(fresh.hardware_count if fresh else 0) + (fault.xid not in MOSTLY_THE_PROGRAMS),
        last_time=o.now,
        last_attempt=number,
        last_round=in_round,
    )
    draft.set(strikes=tuple([*(one for one in draft.status.strikes if one is not before), strike][-LIMIT:]))


def _judged(o: Observation, draft: Draft, fault: Fault, *, shared: bool) -> Fault:
    """What a strike, already remembered, comes to."""
    if shared:
        return replace(fault, message=f"{fault.message}; other GPUs erred in the same attempt: the program's own")
    own, uuid, xid = _own(o, draft), _uuid(fault), fault.xid
    if any((one.rank, one.xid) == (fault.pod.rank, xid) and one.gpu_uuid != uuid for one in own):
        message = f"pod {fault.pod.rank} met it on another GPU before: the program's own"
        return replace(fault, message=f"{fault.message}; {message}")
    known = next(one for one in own if one.gpu_uuid == uuid)
    if brakes.doubt(o, fault) is None and _writes_nodes(o):
        noted = known.model_copy(update={"node_name": fault.pod.node})
        draft.set(strikes=tuple(noted if one is known else one for one in draft.status.strikes))
        _note(o, draft, noted)
    others = _of_others(o, fault)
    if xid in MOSTLY_THE_PROGRAMS:
        jobs = {_program(strike.job) for strike in others if strike.job} - {_program(_digest(o.job))}
        if not jobs:
            # The next attempt looks whether it follows the rank.
            return replace(fault, avoid=Avoid.RATHER) if known.count >= TOO_MANY else fault
        message = f"time {known.count + len(others)} within 24 h for this GPU, in {len(jobs) + 1} jobs"
    else:
        times = known.hardware_count + sum(strike.xid not in MOSTLY_THE_PROGRAMS for strike in others)
        if times < TOO_MANY:
            return fault
        message = f"time {times} within 24 h for this GPU"
    return replace(fault, message=f"{fault.message}; {message}", avoid=Avoid.STRICTLY, cordon=True)


def follow(o: Observation, draft: Draft) -> None:
    """Have nodes remember what was just written down; repeated until the next gang is made, so that a kill loses none.

    Of a round no new gang tells the end of that: there it is repeated for a while.
    """
    if o.job.spec is None or not draft.status.strikes or not _writes_nodes(o):
        return
    status = draft.status
    number = None
    if status.recovery.stage == RecoveryStage.STOPPING:
        number = status.attempt
    elif draft.attempt(status.attempt).created_time is None:
        number = draft.before(status.attempt).number
    for one in status.strikes:
        just_now = one.last_round and one.last_time and o.now - one.last_time < _NOTED_AGAIN
        if one.last_attempt == number or just_now:
            _note(o, draft, one)


def _writes_nodes(o: Observation) -> bool:
    return o.defaults.may_cordon and not o.defaults.cordon_dry_run and o.spec.recovery.cordon is CordonPolicy.AUTO


def _note(o: Observation, draft: Draft, strike: Strike) -> None:
    if strike.node_name and strike.last_time:
        noted = NodeStrike(strike.gpu_uuid, strike.last_time, _digest(o.job), strike.xid)
        draft.act(NoteStrike(strike.node_name, noted))


def _own(o: Observation, draft: Draft) -> list[Strike]:
    """This job's strikes within the window."""
    return [one for one in draft.status.strikes if one.last_time is not None and o.now - one.last_time < WINDOW]


def _of_others(o: Observation, fault: Fault) -> list[NodeStrike]:
    """What the GPU did to other jobs within the window, as the node remembers it."""
    seen = o.nodes.get(fault.pod.node)
    strikes = [one for one in seen.strikes if one.gpu_uuid == _uuid(fault)] if seen else []
    return [one for one in strikes if one.job != _digest(o.job) and timedelta() <= o.now - one.time < WINDOW]


def _digest(job: Job) -> str:
    """What tells a job from others on a node, for everybody to read: neither its name nor its uid, which are its business."""
    return "-".join(hashlib.sha256(word.encode()).hexdigest()[:12] for word in (f"{job.namespace}/{job.name}", job.uid))


def _program(digest: str) -> str:
    """Which program a job runs, as far as its name tells: one that is made again has another uid, and the same fault."""
    return digest.partition("-")[0]


def _uuid(fault: Fault) -> str:
    return (fault.gpu.uuid if fault.gpu else None) or ""
