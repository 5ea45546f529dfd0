"""Rounds: what the leader tells of ranks that started anew inside their living pods goes into the books.

The agents have acted already, and asked nobody: here a fault is only charged, once, as an attempt's would be. A round is
known by attempt and number, so a pass may be repeated and an operator may have been away; of rounds that are told no more,
only how many is known. A budget that is used up ends the job. A GPU that asked for new processes is a strike, as an
attempt's would be. Where that, the fault, or a rule of the job's speaks against the node, the gang starts again elsewhere,
as a new attempt: its ranks train there by now.

Whether a round made progress is told by where the next one began: it is charged in the pass that writes that down, or
that books another end before. So the newest round without that step is the one that is not charged yet; where its attempt
ends meanwhile, the attempt's end alone is charged.

A round that ended because a pod was lost is booked and not charged: `replace`, or `recover`, charges the loss itself. That
it ended so is believed no more often than pods were made anew. Where a spare has taken its place, or the gang has gone on
with fewer nodes, before the loss was seen, the round is charged, and that pod is made anew at no further cost. A round that
ended only so that the next one takes more nodes is charged to nobody.

A new leader knows of no round before its own first; the one that rank 0's pod was lost in is booked with that one's first
step.

Only rank 0's pod is believed, of this attempt, about its own job: more harm than ending itself it cannot do. That a driver
spoke in another pod it is believed where both run the same program, and know each other by the gang's key.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_api.contract.names import pod_name
from oarlock_api.contract.report import Evidence, Gpu, Report
from oarlock_api.contract.rounds import RoundEnd
from oarlock_api.contract.status import PodStatus
from oarlock_api.history import RecoveryStage, Replacing, Round, Rung, Surging
from oarlock_operator.decide import made_progress, repeated_gpu_faults, rungs
from oarlock_operator.decide.charge import charge
from oarlock_operator.decide.draft import Draft
from oarlock_operator.decide.finish import stop
from oarlock_operator.decide.made_progress import last_round
from oarlock_operator.decide.recover import begin_next, blame, last_fault
from oarlock_operator.faults.attribution import Attribution, detected_at
from oarlock_operator.faults.classify import Avoid, Budget, Fault, classify
from oarlock_operator.faults.rules import ruled
from oarlock_operator.model.observation import Ending, Observation, Pod
from oarlock_operator.model.reasons import Reason

KEPT = 10
_RUNS = {None, RecoveryStage.START.value, RecoveryStage.FIRST_STEP.value, RecoveryStage.REPLACE.value}
"""Stages in which a gang may have rounds."""


def rounds(o: Observation, draft: Draft) -> bool:
    """Book what the leader tells beyond what is booked; True where the job, or the attempt, ends with it."""
    news = o.progress
    if news is None or news.attempt != draft.status.attempt or draft.status.recovery.stage not in _RUNS:
        return False
    uncharged = _uncharged(draft)
    _complete(o, draft, news)
    if uncharged and not _uncharged(draft) and _charge(o, draft, uncharged, news):
        return True
    before = last_round(draft)
    booked = before.round if before else 0
    new = [end for end in (news.rounds or _lost_with_its_leader(draft, news)) if end.number > booked]
    if new:
        if progress := draft.status.progress:  # what was silent has ended
            heard = {"silent_seconds": None, "hang_after_seconds": None}
            draft.set(progress=progress.model_copy(update=heard))
        _book_untold(o, draft, new, booked)
    return any(_book(o, draft, end, news) for end in new)


def _book(o: Observation, draft: Draft, end: RoundEnd, news: PodStatus) -> bool:
    """Write one round down, with what it costs; True where nothing follows it in this attempt."""
    if (uncharged := _uncharged(draft)) and _charge(o, draft, uncharged, news):
        return True
    number = draft.status.attempt
    if _was_charged(draft, end) or (end.lost_pod and _may_have_lost_a_pod(o, draft, end)):
        _book_lost_pod(o, draft, end, news)
        return False
    if rungs.grew(o, draft, end):
        _book_growth(o, draft, end, news)
        return False
    left_out = rungs.is_left_out(draft, end)
    fault = ruled(_fault(o, number, end), o.spec.recovery.rules)
    fault = repeated_gpu_faults.count_round(o, draft, number, fault, end)
    ended = min(detected_at(fault) or o.now, o.now)
    found = last_fault(o, Attribution(fault, victims=0)).model_copy(update={"time": ended})
    draft.set(last_fault=found)
    one = Round(
        attempt=number,
        round=end.number,
        rung=(rungs.of_lost_pod(o, draft, end) if left_out else Rung.RESTART_RANKS).value,
        reason=fault.reason,
        node_name=fault.pod.node or None,
        rank=end.rank,
        exit_code=end.code,
        message=fault.message[:1024],
        ended_time=ended,
        silent_seconds=end.silent_seconds or None,
        node_count=rungs.node_count(o, draft, end),
    )
    draft.set(rounds=(*draft.status.rounds, one)[-KEPT:], round=end.number + 1)
    _complete(o, draft, news)
    avoids = fault.avoid is not Avoid.NO and not fault.victim and not left_out
    ends = avoids or fault.budget is Budget.NONE
    if (ends or not _uncharged(draft)) and _charge(o, draft, one, news):
        return True
    if avoids:
        blame(o, draft, number, [fault])
        begin_next(
            o, draft, Attribution(fault, victims=0), draft.status.restarts, why="the fault speaks against its node"
        )
        draft.again(0)
        return True
    where = "" if end.resumed_step is None else f" from step {end.resumed_step}"
    how = _how(o, one)
    draft.answer_fault(_action(fault, how))
    message = f"{fault.message}. Round {end.number + 1} of attempt {number} starts{where}, {how}."
    draft.tell(Reason.RANKS_RESTARTED, message, warning=True)
    return False


def _was_charged(draft: Draft, end: RoundEnd) -> bool:
    """Whether its pod is made anew for it. One that was only cut off may be back before it goes: its leader knows no loss.

    What its ranks ended by before it was lost is another fault.
    """
    return end.code == ExitCode.PEER_LOST and any(
        one.rank == end.rank and end.number <= one.round for one in draft.status.recovery.replacing
    )


def _may_have_lost_a_pod(o: Observation, draft: Draft, end: RoundEnd) -> bool:
    """Whether the operator charged that loss: else a leader could end every round so, and nothing would be charged."""
    number, rank = draft.status.attempt, end.rank
    booked = [one for one in draft.status.rounds if one.attempt == number and one.rung in rungs.OF_LOST_PODS]
    recovery = draft.status.recovery
    # The next pod of one that was asked to go may take its place before its end is seen: the loss is charged then.
    intents: list[Replacing | Surging] = [*recovery.replacing, *recovery.surging]
    intent = next((one for one in intents if one.rank == rank), None)
    if intent is not None:
        return not any(one.rank == rank and one.round >= intent.round for one in booked)
    if rungs.is_left_out(draft, end):
        return False
    # Pods that stood by were made anew, too, and that was charged to nobody. One that was in the round was not lost in it.
    pod, ended = next((pod for pod in o.of_attempt(number) if pod.rank == rank), None), _time(end.ended_at)
    anew = pod is not None and pod.incarnation > 1
    was_there = pod is not None and pod.placed_at is not None and ended is not None and pod.placed_at < ended
    return anew and not was_there and len(booked) < draft.attempt(number).incarnation - 1


def _book_lost_pod(o: Observation, draft: Draft, end: RoundEnd, news: PodStatus) -> None:
    """Write down a round that ended for a lost pod, by what the operator knows of it, where it does."""
    number = draft.status.attempt
    known = next((one for one in draft.status.recovery.replacing if one.rank == end.rank), None)
    fault, last = _fault(o, number, end), draft.status.last_fault
    # By its time the last fault is known to be this round's, and no end of the attempt.
    judged = last.time if known and last and last.rank == end.rank else None
    one = Round(
        attempt=number,
        round=end.number,
        rung=rungs.of_lost_pod(o, draft, end).value,
        reason=(known.reason if known else None) or fault.reason,
        node_name=(known.node_name if known else fault.pod.node) or None,
        rank=end.rank,
        exit_code=end.code if end.code != ExitCode.PEER_LOST else None,
        message=(last.evidence[0] if judged and last and last.evidence else fault.message)[:1024],
        ended_time=judged or min(detected_at(fault) or o.now, o.now),
        node_count=rungs.node_count(o, draft, end),
    )
    draft.set(rounds=(*draft.status.rounds, one)[-KEPT:], round=end.number + 1)
    if judged and last and one.rung != Rung.REPLACE_POD:
        draft.answer_fault("; ".join(filter(None, (f"started again {_how(o, one)}", last.action))))
    _complete(o, draft, news)


def _book_growth(o: Observation, draft: Draft, end: RoundEnd, news: PodStatus) -> None:
    """Write down a round whose ranks saved and ended so that the next one trains on more nodes: nothing broke."""
    number, nodes = draft.status.attempt, rungs.nodes_after(o, draft, end)
    message = f"the gang takes more nodes: round {end.number + 1} of attempt {number} trains on {nodes}"
    one = Round(
        attempt=number,
        round=end.number,
        rung=Rung.GROW.value,
        reason=Reason.MORE_NODES,
        exit_code=end.code,
        message=message,
        ended_time=min(_time(end.ended_at) or o.now, o.now),
        node_count=rungs.node_count(o, draft, end),
    )
    draft.set(rounds=(*draft.status.rounds, one)[-KEPT:], round=end.number + 1)
    _complete(o, draft, news)
    draft.tell(Reason.MORE_NODES, message)


def _lost_with_its_leader(draft: Draft, news: PodStatus) -> tuple[RoundEnd, ...]:
    """The round in which rank 0's pod was lost, once the new one tells with which step the next one began."""
    lost = next((one for one in draft.status.recovery.replacing if one.rank == 0), None)
    if lost is None or news.round <= 1 or news.resumed_from_step is None or news.figures.step is None:
        return ()
    progress = draft.status.progress
    return (
        RoundEnd(
            number=news.round - 1,
            ended_at=lost.time.isoformat() if lost.time else "",
            rank=0,
            code=ExitCode.PEER_LOST,
            why="pod 0 was lost",
            step=progress.step if progress else None,
            resumed_step=news.resumed_from_step,
            lost_pod=True,
        ),
    )


def _uncharged(draft: Draft) -> Round | None:
    """The newest round, while it is not known where the next one begins."""
    newest = last_round(draft)
    waits = newest is not None and newest.resumed_from_step is None and newest.rung == Rung.RESTART_RANKS
    return newest if waits else None


def _charge(o: Observation, draft: Draft, one: Round, news: PodStatus) -> bool:
    """Charge a round that is booked; True where the job ends with it."""
    end = next((end for end in news.rounds if end.number == one.round), None)
    if end is None:  # more than are told have ended since
        end = RoundEnd(
            number=one.round, ended_at="", rank=one.rank or 0, code=one.exit_code or 1, why=one.message or ""
        )
    fault = ruled(_fault(o, one.attempt, end), o.spec.recovery.rules)
    furthest = made_progress.of_round(o, draft, end, news, one.ended_time or o.now)
    asked = end.code == ExitCode.LEFT_ON_REQUEST and one.rung in rungs.OF_LOST_PODS
    counts = charge(o, draft, fault, furthest=furthest, worked=True, asked_to_go=asked)
    if counts is None:
        return stop(o, draft)
    draft.set(restarts=counts)
    return False


def _book_untold(o: Observation, draft: Draft, new: Sequence[RoundEnd], booked: int) -> None:
    """Rounds that ended while nobody listened, and are told no more: their number, charged as the oldest that is told."""
    untold = new[-1].number - booked - len(new)
    # A new leader does not know them, and what it cannot tell was charged with the loss of the one before.
    if untold <= 0 or any(one.rank == 0 for one in draft.status.recovery.replacing):
        return
    budget = ruled(_fault(o, draft.status.attempt, new[0]), o.spec.recovery.rules).budget
    if budget is Budget.NONE:
        return
    counts = draft.status.restarts
    more = {
        budget.value: getattr(counts, budget.value) + untold,
        "window_start_time": counts.window_start_time or o.now,
    }
    draft.set(restarts=counts.model_copy(update=more))


def _fault(o: Observation, number: int, end: RoundEnd) -> Fault:
    """The fault as if the pod had ended by it, with a report in the leader's words.

    The only evidence against hardware in it is that of a GPU that survived.
    """
    name = pod_name(o.job.name, number, end.rank)
    pod = next(
        (pod for pod in o.of_attempt(number) if pod.rank == end.rank),
        Pod(name=name, uid="", attempt=number, rank=end.rank),
    )
    struck = end.gpu if end.gpu and _may_tell_of(o, number, pod, end) else None
    said = Report(
        attempt=number,
        rank=end.rank,
        pod_uid=pod.uid,
        failure_class="",
        code=end.code,
        detected_at=end.ended_at,
        summary=end.why,
        step=end.step,
        gpu=Gpu(struck.index, uuid=struck.uuid, serial=struck.serial) if struck else None,
        xid=struck.xid if struck else None,
        evidence=(Evidence(struck.probe, struck.xid or "", end.ended_at),) if struck else (),
    )
    ended = Pod(
        name=pod.name,
        uid=pod.uid,
        attempt=number,
        rank=end.rank,
        node=pod.node,
        placed_at=pod.placed_at,
        program=pod.program,
        disrupted=pod.disrupted if end.code == ExitCode.LEFT_ON_REQUEST else "",
        ending=Ending(end.code, report=said),
    )
    fault = classify(ended)
    if fault is None:
        raise ValueError(f"round {end.number} ended with {end.code}, and that is no fault")
    return fault


def _may_tell_of(o: Observation, number: int, pod: Pod, end: RoundEnd) -> bool:
    """Whether rank 0's agent is believed what it says of a driver in this pod.

    It runs the same program, heard it over a link with a key, and this is the pod that the round had.
    """
    leader = next((one for one in o.of_attempt(number) if one.rank == 0), None)
    if leader is None or leader.program != pod.program or not (pod.rank == 0 or pod.program.keyed):
        return False
    ended = _time(end.ended_at)
    return ended is not None and (pod.placed_at is None or pod.placed_at < ended)


def _action(fault: Fault, how: str) -> str:
    return f"ranks started again {how}" + (f" (rule {fault.rule})" if fault.rule else "")


def _how(o: Observation, one: Round) -> str:
    """How the next round starts, in words."""
    return {
        Rung.SHRINK: f"on {one.node_count} of {o.spec.nodes} nodes",
        Rung.TAKE_SPARE: "with a spare in its place",
        Rung.REPLACE_POD: "with other pods",
    }.get(Rung(one.rung), "in their pods")


# What is known of a round only later: where the next one began, and how long that took


def _complete(o: Observation, draft: Draft, news: PodStatus) -> None:
    """Fill in what was not known yet of this attempt's rounds; each figure once, and with it the GPU time that it cost."""
    told = {end.number: end for end in news.rounds or _lost_with_its_leader(draft, news)}
    number = draft.status.attempt
    filled = tuple(
        _filled(o, draft, one, end, news) if one.attempt == number and (end := told.get(one.round)) else one
        for one in draft.status.rounds
    )
    if filled != draft.status.rounds:
        draft.set(rounds=filled)


def _filled(o: Observation, draft: Draft, one: Round, end: RoundEnd, news: PodStatus) -> Round:
    changes: dict[str, float] = {}
    lost = 0
    if one.resumed_from_step is None and end.resumed_step is not None:
        lost = max(0, (end.step or 0) - end.resumed_step)
        changes |= {"resumed_from_step": end.resumed_step, "resumed_from_memory": end.from_memory, "lost_steps": lost}
        _step_back(draft, one, end.resumed_step)
    down = _down_seconds(draft, one, end, news) if one.down_seconds is None else None
    if down is not None:
        changes["down_seconds"] = round(down, 3)
        if end.start_wait_seconds is not None:
            changes["start_wait_seconds"] = end.start_wait_seconds
    if not changes:
        return one
    # Before the attempt's first step all of its time counts as its start.
    trained = one.rung in rungs.OF_LOST_PODS or _follows_the_first_step(news, end)
    _waste(o, draft, steps=lost, seconds=(down or 0.0) if trained else 0.0)
    return one.model_copy(update=changes)


def _down_seconds(draft: Draft, one: Round, end: RoundEnd, news: PodStatus) -> float | None:
    """From the fault to the first new step. A new rank 0 knows of no time before its own start, but its loss is booked."""
    lost = next((each for each in draft.status.recovery.replacing if each.rank == 0), None)
    first = _time(news.first_step_at)
    if one.rung not in rungs.OF_LOST_PODS or one.rank != 0 or not (lost and lost.time and first and lost.time < first):
        return end.down_seconds
    return (first - lost.time).total_seconds()


def _step_back(draft: Draft, one: Round, step: int) -> None:
    """Training went back to this step: what is lost with the next fault counts from there."""
    progress, newest = draft.status.progress, last_round(draft)
    if newest is not None and one.round == newest.round and progress and (progress.step or 0) > step:
        draft.set(progress=progress.model_copy(update={"step": step, "eta_seconds": None}))


def _waste(o: Observation, draft: Draft, *, steps: int, seconds: float) -> None:
    """Count GPU time in which nothing new was trained: at most all that the attempt has had, whatever a pod says."""
    progress, made = draft.status.progress, draft.attempt(draft.status.attempt).created_time
    redone = steps * ((progress.seconds_per_step or 0.0) if progress else 0.0)
    most = (o.now - made).total_seconds() if made else 0.0
    gpus = o.spec.nodes * o.spec.gpus_per_node
    wasted = round(max(0.0, min(seconds + redone, most)) * gpus)
    if wasted:
        draft.set(wasted_gpu_seconds=draft.status.wasted_gpu_seconds + wasted)


def _follows_the_first_step(news: PodStatus, end: RoundEnd) -> bool:
    """By one clock: both times are rank 0's agent's."""
    first, ended = _time(news.first_step_at), _time(end.ended_at)
    return first is not None and ended is not None and first < ended


def _time(said: str) -> datetime | None:
    try:
        time = datetime.fromisoformat(said)
    except ValueError:
        return None
    return time if time.tzinfo else None
