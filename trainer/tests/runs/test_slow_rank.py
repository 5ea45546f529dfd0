"""A rank of a real gang that computes slowly is told by rank 0, with its number, and the others are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from oarlock_api.contract.status import StepPart
from oarlock_trainer.loop.rank_pace import RankPace
from oarlock_trainer.loop.slow_rank import SLOW
from oarlock_trainer.loop.step_clock import Split
from oarlock_trainer.runtime import channel
from oarlock_trainer.runtime.channel import Event
from oarlock_trainer.runtime.job import RankInfo

if TYPE_CHECKING:
    from pathlib import Path

    from gang import Gang


@pytest.mark.deep
def test_a_slow_rank_of_a_gang_is_told_by_its_number_and_its_pod(gang: Gang, tmp_path: Path) -> None:
    training = gang.training(steps=41, checkpoint={"intervalSteps": 100})
    run = gang.run(tmp_path, training, environment={"SLOW_RANK": "1"})
    assert run.codes == {0: 0, 1: 0}, run.failure
    (told,) = [event for event in run.of(Event.DEGRADED) if event["reason"] == "SlowRank"]
    assert told["rank"] == 0, "the leader tells"
    assert told["message"].startswith("rank 1, in pod 0 of the gang, takes ")
    assert (told["slowRank"], told["pod"]) == (1, 0)
    lags = [event["slowestRankLag"] for event in run.of(Event.STEP) if "slowestRankLag" in event]
    assert (lags[0], lags[-1] >= SLOW - 1) == (None, True), "unknown before it can be judged"


@pytest.mark.parametrize("waiting", [0.0, 0.5])
def test_a_step_for_whose_data_a_rank_has_waited_tells_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch, waiting: float
) -> None:
    told: list[dict[str, object]] = []
    monkeypatch.setattr(channel, "send", lambda event, **fields: told.append({"event": event, **fields}))
    ranks = [RankPace(RankInfo(rank=rank, local_rank=0, world_size=3, local_world_size=1)) for rank in range(3)]
    for _ in range(100):
        exchanged = [sum(each) for each in zip(*(rank.told() for rank in ranks), strict=True)]
        for number, rank in enumerate(ranks):
            slow = number == 2
            parts = dict.fromkeys(StepPart, 0.0) | {StepPart.FORWARD: 1.5 if slow else 1.0}
            rank.take(exchanged, Split(2.0, parts | {StepPart.DATA: waiting if slow else 0.0}))
    assert [event["event"] for event in told] == ([] if waiting else [Event.DEGRADED])
    assert all(str(event["message"]).startswith("rank 2, in pod 2 of the gang, takes 50% longer") for event in told)
    assert RankPace(RankInfo(rank=0, local_rank=0, world_size=1, local_world_size=1)).told() == []
