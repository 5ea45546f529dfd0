"""A gang of which the operator hears nothing while it trains: what its pods say at their end counts all the same."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from jobs import job, report, spec
from worlds import World

from oarlock_api.contract.names import pod_name
from oarlock_operator.model.observation import Ending


def test_checkpoints_that_only_the_last_words_tell_of_are_progress() -> None:
    world = World(job=job(spec=spec(recovery={"maxRestartsWithoutProgress": 2, "maxInfrastructureRestarts": 50})))
    for attempt in range(1, 9):
        world.settle()
        world.start_all()
        world.settle()
        name = pod_name("flux", world.job.status.attempt, 1)
        pod = world.pods[name]
        said = replace(report(pod, code=81, at=world.now), checkpoint_step=100 * attempt)
        world.pods[name] = replace(pod, ready=False, ending=Ending(81, report=said))
        world.settle()
        world.kubelets()
        world.now += timedelta(seconds=400)
        world.settle()
    assert world.job.status.attempt == 9
    assert world.job.status.restarts.without_progress <= 1, "the first may have begun with anything"
