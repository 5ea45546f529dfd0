"""What befalls a pod that trains, as lines of the story: each thing once."""

from __future__ import annotations

from dataclasses import replace

from oarlock_api.contract.history import StoryLine, StoryType
from oarlock_api.contract.requests import Drill
from oarlock_api.contract.rounds import RoundEnd
from oarlock_api.contract.status import Degradation, PodPhase, PodStatus, pod_of_gang
from oarlock_trainer.agent.history.life import Life, Teller

AT = "2026-01-01T00:00:00Z"
TRAINING = PodStatus(job_uid="u", pod_uid="p", attempt=1, rank=0, phase=PodPhase.TRAINING, heartbeat_at=AT)


def told(*statuses: PodStatus) -> list[StoryLine]:
    life = Life(Teller(job="u", attempt=1, rank=0, node="node-1"))
    life.nodes = {0: "node-1", 1: "node-7"}
    return [line for status in (TRAINING, *statuses) for line in life.changes(status, at=AT)]


def test_each_drill_is_told_once_with_its_seconds() -> None:
    first = replace(TRAINING, drill=Drill(step=12, seconds=4.25))
    lines = told(first, replace(first, heartbeat_at="later"), replace(first, drill=Drill(step=24, seconds=3.0)))
    assert [line.type for line in lines] == [StoryType.DRILL, StoryType.DRILL]
    assert [line.data for line in lines] == [{"step": 12, "seconds": 4.25}, {"step": 24, "seconds": 3.0}]
    assert lines[0].message, "`oarlock why` shows lines with words"


def test_a_slow_rank_has_a_type_of_its_own_and_all_else_that_is_wrong_is_degraded() -> None:
    slow = replace(TRAINING, degraded={Degradation.SLOW_RANK: "rank 3 is slow"})
    both = replace(slow, degraded={**slow.degraded, Degradation.CHECKPOINT_STORAGE_FULL: "no room"})
    assert [(line.type, line.reason, line.message) for line in told(slow, both, TRAINING)] == [
        (StoryType.SLOW_RANK, "SlowRank", "rank 3 is slow"),
        (StoryType.DEGRADED, "CheckpointStorageFull", "no room"),
        (StoryType.SLOW_RANK, "SlowRank", ""),
        (StoryType.DEGRADED, "CheckpointStorageFull", ""),
    ]


def test_a_slow_rank_is_told_of_the_node_that_it_is_on_and_so_is_its_end() -> None:
    slow = replace(TRAINING, degraded={Degradation.SLOW_RANK: f"rank 3, in {pod_of_gang(1)}, is slow"}, slow_pod=1)
    lines = told(slow, TRAINING)
    assert [(line.rank, line.node, line.message) for line in lines] == [
        (1, "node-7", "rank 3, in pod 1 on node-7, is slow"),
        (1, "node-7", ""),
    ]


def test_a_round_that_ended_is_told_of_the_pod_whose_fault_it_was_and_again_with_the_first_new_step() -> None:
    killed = "rank 3 was killed by SIGKILL"
    end = RoundEnd(number=1, ended_at="2026-01-01T00:00:05Z", rank=1, code=137, why=killed, step=143)
    begun = replace(TRAINING, phase=PodPhase.STARTING, round=2, rounds=(end,))
    resumed = replace(begun, rounds=(replace(end, resumed_step=140),))
    stepped = replace(begun, phase=PodPhase.TRAINING, rounds=(replace(end, resumed_step=140, down_seconds=2.6),))
    ended, restarted = (
        line
        for line in told(
            begun, replace(begun, heartbeat_at="later"), resumed, stepped, replace(stepped, heartbeat_at="x")
        )
        if line.type != StoryType.STAGE
    )
    assert (ended.type, ended.time, ended.reason, ended.message) == (
        StoryType.ROUND_ENDED, end.ended_at, "Application", killed,
    )  # fmt: skip
    assert (ended.rank, ended.node, ended.data) == (1, "node-7", {"round": 1, "code": 137, "step": 143})
    assert (restarted.type, restarted.rank, restarted.data) == (
        StoryType.RANKS_RESTARTED, 0, {"round": 1, "step": 140, "downSeconds": 2.6},
    )  # fmt: skip


def test_a_second_round_that_ends_is_told_once_and_the_first_not_again() -> None:
    first = RoundEnd(number=1, ended_at=AT, rank=0, code=1, why="rank 0: ValueError")
    second = replace(first, number=2, code=83, why="no step", resumed_step=0, down_seconds=61.0, silent_seconds=60.0)
    lines = told(replace(TRAINING, rounds=(first,)), replace(TRAINING, rounds=(first, second)))
    assert [(line.type, line.node, line.data["round"]) for line in lines] == [
        (StoryType.ROUND_ENDED, "node-1", 1),
        (StoryType.ROUND_ENDED, "node-1", 2),
        (StoryType.RANKS_RESTARTED, "node-1", 2),
    ]
    assert [line.data.get("silentSeconds") for line in lines] == [None, 60.0, None]


def test_a_lost_pod_s_end_is_told_of_the_node_that_it_was_on_and_what_follows_of_the_next_one_s() -> None:
    life = Life(Teller(job="u", attempt=1, rank=0, node="node-1"))
    assert life.move({0: "node-1", 1: "node-7"}) == [0, 1]
    life.changes(TRAINING, at=AT)
    assert life.move({0: "node-1", 1: "node-9"}) == [1]
    lost = RoundEnd(number=1, ended_at=AT, rank=1, code=82, why="silent", lost_pod=True)
    failed = replace(lost, number=2, code=1, lost_pod=False)
    rounds = (lost,), (lost, failed)
    lines = [line for ends in rounds for line in life.changes(replace(TRAINING, rounds=ends), at=AT)]
    assert [line.node for line in lines] == ["node-7", "node-9"]
