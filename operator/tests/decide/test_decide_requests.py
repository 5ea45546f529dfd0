"""What people ask of a job: taken once, answered with words, and a grace that is too short is told."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from jobs import spec
from worlds import World, condition

from oarlock_api.contract.requests import Answered, Drill, RequestState
from oarlock_api.history import RecoveryStage, RecoveryStatus
from oarlock_api.spec import TrainingJobSpec
from oarlock_operator.decide import requests
from oarlock_operator.decide.draft import Draft
from oarlock_operator.model.observation import Ending
from oarlock_operator.model.reasons import Reason


def training() -> World:
    world = World()
    world.running(step=10)
    return world


def ask(world: World, annotation: str) -> list[str]:
    """The annotation is written; the reasons of the Events of the pass that sees it."""
    world.job = replace(world.job, request=annotation)
    return [event.reason for event in world.one_pass().events]


def hear(world: World, answered: Answered | None = None, *, drill: Drill | None = None) -> list[str]:
    """Rank 0 answers."""
    world.step(20)
    assert world.progress is not None
    world.progress = replace(world.progress, request=answered, drill=drill)
    events = [event.reason for event in world.one_pass().events]
    world.progress = None
    return events


def state(world: World) -> tuple[str, str | None]:
    assert world.job.status.request is not None
    return world.job.status.request.state, world.job.status.request.message


def test_a_request_stands_in_the_status_before_the_gang_hears_of_it_and_is_served_once() -> None:
    world = training()
    assert ask(world, "save mine") == []
    assert state(world) == (RequestState.ASKED, None)
    done = Answered(id="mine", state=RequestState.DONE, step=21, seconds=3.25)
    assert hear(world, done) == [Reason.SAVED_ON_REQUEST]
    asked = world.job.status.request
    assert asked is not None
    assert (asked.id, asked.verb, asked.state, asked.step, asked.seconds) == ("mine", "save", "Done", 21, 3.25)
    assert hear(world, done) == []
    world.settle()
    assert world.job.status.request == asked, "the annotation stays, and is no second request"
    assert ask(world, "save other") == []
    assert state(world)[0] == RequestState.ASKED


def test_a_second_request_waits_for_the_end_of_the_first() -> None:
    world = training()
    ask(world, "save one")
    ask(world, "drill two")
    assert world.job.status.request is not None
    assert world.job.status.request.id == "one"
    hear(world, Answered(id="one", state=RequestState.FAILED, message="no room"))
    assert state(world) == (RequestState.FAILED, "no room")
    world.one_pass()
    assert (world.job.status.request.id, world.job.status.request.verb) == ("two", "drill")


@pytest.mark.parametrize("verb", ["save", "drill"])
def test_stacks_wait_for_no_save_that_is_under_way_for_that_may_hang(verb: str) -> None:
    world = training()
    ask(world, f"{verb} one")
    assert ask(world, "stacks two") == [Reason.REQUEST_NOT_SERVED], "of the save"
    asked = world.job.status.request
    assert asked is not None
    assert (asked.id, asked.verb, asked.state) == ("two", "stacks", RequestState.ASKED)
    assert hear(world, Answered(id="two", state=RequestState.DONE)) == [Reason.STACKS_TAKEN]


def test_a_save_that_has_ended_is_told_before_the_stacks_that_are_asked_for() -> None:
    world = training()
    ask(world, "save one")
    world.job = replace(world.job, request="stacks two")
    assert hear(world, Answered(id="one", state=RequestState.DONE, step=21)) == [Reason.SAVED_ON_REQUEST]


def test_other_stacks_wait_for_the_end_of_the_first() -> None:
    world = training()
    ask(world, "stacks one")
    assert ask(world, "stacks two") == []
    assert world.job.status.request is not None
    assert world.job.status.request.id == "one"


@pytest.mark.parametrize("annotation", ["save", "dance now", "save a/b", "save " + "x" * 41, " "])
def test_what_cannot_be_read_is_refused_with_how_to_write_it(annotation: str) -> None:
    world = training()
    assert ask(world, annotation) == [Reason.REQUEST_NOT_SERVED]
    assert state(world)[0] == RequestState.REFUSED
    assert "VERB ID" in (state(world)[1] or "")
    assert ask(world, annotation) == [], "told once"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param(
            {"custom": {"command": ["train"]}, "pod": {"image": "own:1"}, "training": None}, "own command", id="custom"
        ),
        pytest.param(
            {"training": {**spec().to_manifest()["training"], "task": "Preprocess", "steps": None}}, "Preprocess"
        ),
    ],
)
def test_a_job_that_makes_no_checkpoints_says_so(change: dict[str, object], words: str) -> None:
    world = training()
    raw = {key: value for key, value in {**spec().to_manifest(), **change}.items() if value is not None}
    if isinstance(settings := raw.get("training"), dict):
        raw["training"] = {key: value for key, value in settings.items() if value is not None}
    world.job = replace(world.job, spec=TrainingJobSpec.model_validate(raw))
    ask(world, "save 1")
    assert state(world)[0] == RequestState.REFUSED
    assert words in (state(world)[1] or "")


def test_a_job_that_does_not_train_at_the_moment_refuses() -> None:
    world = World()
    world.settle()
    ask(world, "drill 1")
    assert state(world)[0] == RequestState.REFUSED
    assert "does not train at the moment" in (state(world)[1] or "")


def test_a_request_ends_with_its_attempt() -> None:
    world = training()
    ask(world, "save 1")
    world.end(1, 1)
    world.one_pass()
    world.one_pass()
    assert state(world)[0] == RequestState.FAILED
    assert "attempt 1" in (state(world)[1] or "")


@pytest.mark.parametrize("verb", ["save", "stacks"])
def test_a_request_outlives_a_pod_that_is_replaced_but_not_for_ever(verb: str) -> None:
    world = training()
    ask(world, f"{verb} mine")
    waits = RecoveryStatus(stage=RecoveryStage.REPLACE, stage_start_time=world.now)
    world.job = replace(world.job, status=world.job.status.model_copy(update={"recovery": waits}))
    draft = Draft(world.job.status)
    requests.requests(world.observe(), draft)
    assert draft.status.request == world.job.status.request
    world.now += requests.LONGEST + timedelta(seconds=1)
    requests.requests(world.observe(), draft)
    assert draft.status.request is not None
    assert draft.status.request.state == RequestState.FAILED


def test_an_agent_of_an_earlier_release_is_not_waited_for() -> None:
    world = training()
    ask(world, "save 1")
    hear(world)
    assert state(world)[0] == RequestState.ASKED
    world.request_seconds = requests.UNHEARD_SECONDS + 1
    assert hear(world) == [Reason.REQUEST_NOT_SERVED]
    assert "earlier release" in (state(world)[1] or "")


def test_an_agent_that_is_busy_with_an_earlier_request_is_waited_for() -> None:
    world = training()
    ask(world, "save 2")
    world.request_seconds = requests.UNHEARD_SECONDS + 1
    assert hear(world, Answered(id="1", state=RequestState.DONE, step=12, seconds=3.0)) == []
    assert state(world) == (RequestState.ASKED, None)
    assert hear(world, Answered(id="2", state=RequestState.DONE, step=21, seconds=3.0)) == [Reason.SAVED_ON_REQUEST]


def test_an_agent_that_was_asked_only_now_is_not_refused_for_the_time_in_which_nobody_asked_it() -> None:
    """The operator died after it had written the request down."""
    world = training()
    ask(world, "save 1")
    world.now += timedelta(minutes=5)
    assert hear(world) == []
    assert state(world) == (RequestState.ASKED, None)


def test_what_is_never_answered_fails_in_the_end() -> None:
    world = training()
    ask(world, "save 1")
    world.now += requests.LONGEST
    world.one_pass()
    assert state(world)[0] == RequestState.ASKED
    world.now += timedelta(seconds=1)
    world.one_pass()
    assert state(world)[0] == RequestState.FAILED


def test_a_drill_that_takes_longer_than_the_grace_degrades_the_job_until_one_is_faster() -> None:
    world = training()
    grace = world.job.spec.pod.termination_grace_period_seconds if world.job.spec else 0
    assert hear(world, drill=Drill(step=12, seconds=grace + 0.5)) == [Reason.GRACE_TOO_SHORT]
    known = world.job.status.eviction_readiness
    assert known is not None
    assert (known.seconds_needed, known.grace_seconds, known.step, known.by) == (grace + 0.5, grace, 12, "Drill")
    assert condition(world, "Degraded") == ("True", Reason.GRACE_TOO_SHORT)
    assert hear(world, drill=Drill(step=12, seconds=grace + 0.5)) == []
    assert world.job.status.eviction_readiness == known, "one drill is written down once"
    hear(world, drill=Drill(step=24, seconds=1.0))
    assert condition(world, "Degraded") == ("False", Reason.AS_EXPECTED)


def test_what_a_real_eviction_took_outweighs_a_drill_of_its_attempt() -> None:
    world = training()
    hear(world, drill=Drill(step=12, seconds=2.0))
    for rank, seconds in ((0, 7.0), (1, 9.04)):
        world.end(rank, 86, attempt=1)
        name = f"flux-1-{rank}"
        ending = world.pods[name].ending
        assert ending is not None
        assert ending.report is not None
        left = replace(ending.report, leaving_seconds=seconds, checkpoint_step=13)
        world.pods[name] = replace(world.pods[name], ending=Ending(86, report=left))
        world.one_pass()
    known = world.job.status.eviction_readiness
    assert known is not None
    assert (known.seconds_needed, known.step, known.by, known.attempt) == (9.0, 13, "Eviction", 1)
    world.settle()
    assert world.job.status.eviction_readiness == known


def test_a_drill_of_a_later_attempt_is_written_down_though_pods_that_were_evicted_are_remembered() -> None:
    world = training()
    for rank in (0, 1):
        world.end(rank, 86)
        pod = world.pods[f"flux-1-{rank}"]
        assert pod.ending is not None
        assert pod.ending.report is not None
        left = replace(pod.ending.report, leaving_seconds=7.0, checkpoint_step=13)
        world.pods[pod.name] = replace(pod, ending=Ending(86, report=left))
    gone = {name: replace(pod, gone=True) for name, pod in world.pods.items()}
    world.one_pass()
    world.now += timedelta(seconds=400)
    world.running()
    assert world.job.status.attempt == 2
    world.pods |= gone
    hear(world, drill=Drill(step=24, seconds=1.0))
    known = world.job.status.eviction_readiness
    assert known is not None
    assert (known.seconds_needed, known.by, known.attempt) == (1.0, "Drill", 2)


def test_stacks_are_asked_of_a_gang_that_has_not_made_a_step_and_are_told_when_they_are_there() -> None:
    world = World()
    world.settle()
    assert ask(world, "stacks early") == [Reason.REQUEST_NOT_SERVED]
    world.start_all()
    world.settle()
    assert world.job.status.recovery.stage == "FirstStep"
    assert ask(world, "stacks mine") == []
    assert state(world)[0] == RequestState.ASKED
    world.one_pass()
    assert state(world)[0] == RequestState.ASKED, "it needs no first step"
    words = "stacks of the ranks of 2 of 2 pods are in their logs"
    assert hear(world, Answered(id="mine", state=RequestState.DONE, message=words)) == [Reason.STACKS_TAKEN]
    assert state(world) == (RequestState.DONE, words)


def test_stacks_of_a_gang_that_goes_are_not_waited_for() -> None:
    world = training()
    ask(world, "stacks mine")
    world.end(1, 1)
    world.settle()
    assert state(world)[0] == RequestState.FAILED
