"""Degraded: what rank 0 finds not as it should be is told while it holds, and by an Event once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from jobs import job, spec
from worlds import World, condition

from oarlock_api.contract.figures import Figures
from oarlock_api.contract.status import Degradation, PlanStatus, pod_of_gang
from oarlock_api.requests import EvictionReadiness, MeasuredBy
from oarlock_operator.model.reasons import Reason

FULL = "no room for the checkpoint of step 20: give the output more room"


def tell(world: World, **degraded: str) -> list[str]:
    """One pass that hears of what is wrong; returns the reasons of its Events."""
    world.step(20)
    assert world.progress is not None
    world.progress = replace(world.progress, degraded=degraded)
    events = [event.reason for event in world.one_pass().events]
    world.progress = None
    return events


def training() -> World:
    world = World()
    world.running(step=10)
    return world


@pytest.mark.parametrize("kind", Degradation)
def test_each_degradation_has_a_reason_of_the_same_name(kind: Degradation) -> None:
    world = training()
    assert tell(world, **{kind: "words"}) == [Reason(kind)]
    assert condition(world, "Degraded") == ("True", kind)


def test_a_full_storage_is_degraded_until_a_checkpoint_was_saved_and_told_of_once() -> None:
    world = training()
    assert tell(world, CheckpointStorageFull=FULL) == [Reason.CHECKPOINT_STORAGE_FULL]
    assert tell(world, CheckpointStorageFull=FULL) == []
    assert next(c.message for c in world.job.status.conditions if c.type == "Degraded") == FULL
    assert tell(world) == []
    assert condition(world, "Degraded") == ("False", Reason.AS_EXPECTED)


def test_a_pod_that_rank_0_knows_by_its_number_is_told_by_its_name_and_node() -> None:
    world = training()
    tell(world, SlowRank=f"rank 9, in {pod_of_gang(1)}, is slow; {pod_of_gang(99)} is not")
    words = next(c.message for c in world.job.status.conditions if c.type == "Degraded")
    node = world.pods["flux-1-1"].node
    assert node
    assert words == f"rank 9, in pod flux-1-1 on {node}, is slow; pod 99 of the gang is not"


def test_pods_that_know_another_key_are_told_by_name_with_the_remedy_and_go_on_training() -> None:
    world = training()
    world.refusing = frozenset(pod.uid for pod in world.pods.values() if pod.rank == 1)
    assert not world.one_pass().actions
    assert condition(world, "Degraded") == ("True", Reason.KEY_REFUSED)
    words = next(c.message for c in world.job.status.conditions if c.type == "Degraded")
    assert "keep the old one as a further line" in words
    assert words.endswith(": flux-1-1")


def test_while_nobody_answers_it_stays_as_it_was_told() -> None:
    world = training()
    tell(world, CheckpointStorageFull=FULL)
    world.one_pass()
    assert condition(world, "Degraded") == ("True", Reason.CHECKPOINT_STORAGE_FULL)
    assert tell(world, CheckpointStorageFull=FULL) == []


def test_a_gang_that_is_given_up_takes_it_along() -> None:
    world = training()
    tell(world, CheckpointStorageFull=FULL)
    world.end(1, 1)
    world.one_pass()
    assert world.job.status.attempt == 2
    assert condition(world, "Degraded") == ("False", Reason.AS_EXPECTED)


def test_the_worst_is_told_first() -> None:
    world = training()
    tell(world, CheckpointNotCopied="the bucket is away", NonFiniteLoss="the loss is not finite")
    assert condition(world, "Degraded") == ("True", Reason.NON_FINITE_LOSS)


def test_a_slow_network_is_told_once_and_the_gang_is_left_alone() -> None:
    world = training()
    assert tell(world, SlowNetwork="NCCL takes TCP") == [Reason.SLOW_NETWORK]
    assert condition(world, "Degraded") == ("True", Reason.SLOW_NETWORK)
    assert tell(world, SlowNetwork="NCCL takes TCP") == []
    assert world.job.status.attempt == 1


@pytest.mark.parametrize("kind", ["SlowNetwork", "SlowRank"])
def test_what_is_only_slow_hides_nothing_else(kind: str) -> None:
    world = training()
    tell(world, **{kind: "words"})
    world.warnings = {next(iter(world.pods.values())).uid: "GPU 5 is too hot"}
    assert tell(world, **{kind: "words"}) == []
    assert condition(world, "Degraded") == ("True", Reason.GPU_WARNING)


def test_a_job_that_a_new_release_would_refuse_goes_on_and_recovers_and_says_so() -> None:
    world = World(job=replace(job(), problem="spec.pod.env.0: A refers to $(MASTER_ADDR)"))
    world.crash()
    world.running()
    assert world.job.status.attempt == 2
    assert condition(world, "Degraded") == ("True", "InvalidSpec")


def test_gpus_that_nobody_watches_are_told_with_the_reason_and_by_one_event() -> None:
    world = training()
    world.unmonitored = {pod.uid: "this container has no NVML" for pod in world.pods.values() if pod.rank == 1}
    events = [event for _ in range(3) for event in world.one_pass().events]
    assert [event.reason for event in events] == ["GPUUnmonitored"]
    assert condition(world, "Degraded") == ("True", "GPUUnmonitored")
    words = next(c.message for c in world.job.status.conditions if c.type == "Degraded")
    assert words == "nobody watches these pods' GPUs, and they train on: flux-1-1 (this container has no NVML)"
    assert world.job.status.attempt == 1


def test_what_was_told_of_gpus_that_nobody_watches_outlives_an_operator_and_is_not_told_again() -> None:
    world = training()
    said = {pod.uid: "this container has no NVML" for pod in world.pods.values()}
    world.unmonitored = said
    world.one_pass()
    before = world.job.status.conditions
    world.unmonitored = None
    assert not world.one_pass().events
    world.unmonitored = said
    assert not world.one_pass().events
    assert world.job.status.conditions == before


def test_another_attempt_does_not_inherit_gpus_that_nobody_watched() -> None:
    world = training()
    world.unmonitored = {pod.uid: "this container has no NVML" for pod in world.pods.values()}
    world.one_pass()
    world.unmonitored = None
    world.crash()
    assert condition(world, "Degraded") == ("False", Reason.AS_EXPECTED)


def test_a_slow_network_and_gpus_that_nobody_watches_are_told_side_by_side_and_each_by_one_event() -> None:
    world = training()
    blind = {pod.uid: "this container has no NVML" for pod in world.pods.values() if pod.rank == 1}
    both = "NCCL takes TCP; nobody watches these pods' GPUs, and they train on: flux-1-1 (this container has no NVML)"
    assert tell(world, SlowNetwork="NCCL takes TCP") == [Reason.SLOW_NETWORK]
    world.unmonitored = blind
    assert tell(world, SlowNetwork="NCCL takes TCP") == [Reason.GPU_UNMONITORED]
    for _ in range(2):
        assert not world.one_pass().events, "nobody answers, and it stays as it was told"
        assert next(c.message for c in world.job.status.conditions if c.type == "Degraded") == both
        assert condition(world, "Degraded") == ("True", Reason.SLOW_NETWORK)
    world.unmonitored = None
    assert tell(world, SlowNetwork="NCCL takes TCP") == [], "the next leader has not asked yet"
    assert next(c.message for c in world.job.status.conditions if c.type == "Degraded") == both
    world.unmonitored = {}
    assert tell(world, SlowNetwork="NCCL takes TCP") == []
    assert next(c.message for c in world.job.status.conditions if c.type == "Degraded") == "NCCL takes TCP"


def test_whatever_holds_for_long_is_told_side_by_side_and_each_by_one_event() -> None:
    world = training()
    world.job = replace(world.job, problem="spec.pod.env.0: A refers to $(MASTER_ADDR)")
    grace = world.job.spec.pod.termination_grace_period_seconds if world.job.spec else 0
    late = EvictionReadiness(
        seconds_needed=grace + 1, grace_seconds=grace, measure_time=world.now, attempt=1, by=MeasuredBy.DRILL.value
    )
    world.job = replace(world.job, status=world.job.status.model_copy(update={"eviction_readiness": late}))
    assert tell(world) == [Reason.GRACE_TOO_SHORT]
    world.unmonitored = {pod.uid: "no NVML" for pod in world.pods.values() if pod.rank == 1}
    assert tell(world) == [Reason.GPU_UNMONITORED]
    assert condition(world, "Degraded") == ("True", Reason.GRACE_TOO_SHORT)
    assert tell(world, SlowRank="rank 1 is slow") == [Reason.SLOW_RANK]
    for news in (None, {}):
        assert not (world.one_pass().events if news is None else tell(world, SlowRank="rank 1 is slow"))
        words = next(c.message for c in world.job.status.conditions if c.type == "Degraded").split("; ")
        assert words == [
            "rank 1 is slow",
            words[1],
            "it goes on, and a new job would be refused: spec.pod.env.0: A refers to $(MASTER_ADDR)",
            "nobody watches these pods' GPUs, and they train on: flux-1-1 (no NVML)",
        ]
        assert words[1].startswith("a save took ")
    assert tell(world, SlowRank="rank 1 is slow", SlowNetwork="NCCL takes TCP") == [Reason.SLOW_NETWORK]
    world.unmonitored = None
    assert tell(world, SlowRank="rank 1 is slow", SlowNetwork="NCCL takes TCP") == [], (
        "the next leader has not asked yet"
    )
    assert tell(world) == []
    assert condition(world, "Degraded") == ("True", Reason.GRACE_TOO_SHORT)


def test_gpus_that_nobody_watches_hide_nothing_else() -> None:
    world = training()
    first, second = (pod.uid for pod in world.pods.values())
    world.unmonitored, world.warnings = {first: "no NVML"}, {second: "GPU 5 is too hot"}
    world.one_pass()
    assert condition(world, "Degraded") == ("True", Reason.GPU_WARNING)


def test_gpus_that_are_only_simulated_need_nobody_who_watches_them() -> None:
    world = World(job=job(spec=spec(pod={"env": [{"name": "OARLOCK_SIMULATE_GPUS", "value": "1"}]})))
    world.running(step=10)
    world.unmonitored = {pod.uid: "no NVML" for pod in world.pods.values()}
    world.one_pass()
    assert condition(world, "Degraded") == ("False", Reason.AS_EXPECTED)


def test_what_something_else_outranks_is_told_of_when_it_is_shown_and_not_at_each_look() -> None:
    world = training()
    silent = next(pod.uid for pod in world.pods.values() if pod.rank == 1)
    world.silent = {silent: 120.0}
    assert [tell(world, CheckpointStorageFull=FULL) for _ in range(2)] == [[], []]
    assert condition(world, "Degraded") == ("True", Reason.STATUS_SILENT)
    world.silent = {}
    assert tell(world, CheckpointStorageFull=FULL) == [Reason.CHECKPOINT_STORAGE_FULL]


def planned(world: World, batch: int) -> int | None:
    """What the status shows after an attempt has told of a plan with this batch."""
    world.settle()
    world.start_all()
    world.settle()
    world.step(0)
    assert world.progress is not None
    plan = PlanStatus(effective_batch=batch, zero_stage=2, memory_bytes=60 * 10**9)
    world.progress = replace(world.progress, figures=Figures(), first_step_at="", plan=plan)
    world.one_pass()
    world.progress = None
    resolved = world.job.status.resolved
    assert resolved is not None
    assert resolved.image == "trainer:test"
    assert resolved.plan is not None
    assert (resolved.plan.zero_stage, resolved.plan.memory_bytes) == (2, 60 * 10**9)
    return resolved.plan.effective_batch


def test_the_plan_is_shown_before_the_first_step_and_kept_through_recoveries() -> None:
    world = World()
    assert planned(world, 32) == 32
    world.crash()
    assert planned(world, 64) == 32


def test_after_a_suspension_the_plan_is_the_new_one() -> None:
    world = World()
    assert planned(world, 32) == 32
    for suspended in (True, False):
        assert world.job.spec is not None
        world.job = replace(world.job, spec=world.job.spec.model_copy(update={"suspend": suspended}))
        world.settle()
        world.kubelets()
        world.settle()
    assert planned(world, 64) == 64
