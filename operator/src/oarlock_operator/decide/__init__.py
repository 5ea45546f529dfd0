"""Decide: from what one pass sees to what it wants. Pure and total: the same observation gives the same plan.

The policies run in the order below. Each looks at the observation and adds to the draft; one that returns True has decided
the pass, and those after it wait for the next. Nothing here reads a clock, draws a random number, or talks to anything.

  standby    who trains, and who stands by, is noted as rank 0's agent tells it
  accept     a job that cannot work ends in Failed, with a message that says what to change
  finish     a job that is to end stops its pods, then says so; one whose ranks all ended with 0 has succeeded
  deadlines  the job's time, the time to come up, the time to find room
  suspend    a gang that shall not run saves and leaves, and starts again when it may
  rounds     ranks that started anew in living pods are booked, as an attempt would be
  replace    a lost pod is made anew by itself, where the others of its gang can wait for it
  recover    a fault in the current attempt: the next attempt's number and reason are written down
  drain      pods of other attempts stop before anything new starts
  claim      the output and the names are this job's alone, or it waits, or it ends
  create     the pods of the current attempt are made, the Service points at them
  follow     how far the queue, the start and the training are
  reschedule a gang that waits for nodes is made anew once one may be used again that its pods keep off
  migrate    a gang moves off nodes that somebody else wants emptied, once others surely wait for it
  slow_rank  a gang moves off the node of a slow rank, where its job asks for that, once a day at most

Besides, whatever the job is about: pods that cannot go because their node is lost are taken away (teardown.force), cordons
that were decided are repeated until they stand (cordon.follow), what people ask is served (requests), groups of attempts that
are over go (delete_groups), and so does a finished job when its time is over (retention).
"""

from __future__ import annotations

from collections.abc import Callable

from oarlock_api.spec import OPERATOR
from oarlock_operator.decide import (
    accept,
    claim,
    cordon,
    create,
    deadlines,
    delete_groups,
    drain,
    finish,
    finished_ranks,
    follow,
    migrate,
    recover,
    repeated_gpu_faults,
    replace,
    requests,
    reschedule,
    retention,
    rounds,
    slow_rank,
    standby,
    summary,
    suspend,
    teardown,
)
from oarlock_operator.decide.draft import Draft
from oarlock_operator.model.observation import Observation
from oarlock_operator.model.plan import Need, Plan

GOING_SECONDS = 10.0
"""Between looks at a job that waits for its pods to go."""

Policy = Callable[[Observation, Draft], bool]

POLICIES: tuple[Policy, ...] = (
    accept.accept,
    finish.stop,
    finish.succeed,
    deadlines.deadlines,
    suspend.suspend,
    rounds.rounds,
    replace.replace,
    recover.recover,
    drain.drain,
    claim.claim,
    create.create,
    follow.follow,
    reschedule.reschedule,
    migrate.migrate,
    slow_rank.leave,
)


def decide(o: Observation) -> Plan | Need:
    """The plan of one pass, or what it hangs on and was not looked at yet."""
    before = o.job.status
    if o.job.managed_by != OPERATOR or o.job.unreadable:
        return Plan()
    o = accept.taken_before(finished_ranks.recalled(standby.heard(o)))
    draft = Draft(o.job.status)
    teardown.force(o, draft)
    cordon.follow(o, draft)
    repeated_gpu_faults.follow(o, draft)
    requests.requests(o, draft)
    if o.job.deleting:
        # Its pods' events are no news any more; one on a lost node may have to be taken away.
        if any(not pod.gone for pod in o.pods):
            draft.again(GOING_SECONDS)
        return draft.outcome(before)
    if before.completion_time is not None:
        delete_groups.delete_groups(o, draft)
        retention.retire(o, draft)
        return draft.outcome(before)
    finished_ranks.note(o, draft)
    for policy in POLICIES:
        if policy(o, draft):
            break
    delete_groups.delete_groups(o, draft)
    summary.summarize(o, draft)
    retention.retire(o, draft)
    return draft.outcome(before)
