"""Sizes that an agent takes for possible are those that the trainer deals its steps to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from oarlock_api.contract.rounds import InPlace
from oarlock_api.contract.sections import Elastic
from oarlock_api.training import Training
from oarlock_trainer.agent.rounds.choice import membership_of
from oarlock_trainer.agent.rounds.membership import Membership
from oarlock_trainer.runtime.dealing import dealing_of
from oarlock_trainer.runtime.errors import ConfigurationError

TRAINING: dict[str, Any] = {
    "model": {"family": "Flux1", "path": "/models/flux"},
    "steps": 50,
    "data": {"datasets": [{"name": "photos", "source": {"path": "/data"}}]},
    "batchSize": 3,
    "effectiveBatch": 21,
}


def choice(**changes: Any) -> Membership:
    """Of a job of six nodes with two GPUs each."""
    recovery = SimpleNamespace(in_place=changes.pop("in_place", InPlace.AUTO))
    pod = SimpleNamespace(replaces_pods=changes.pop("replaces_pods", True))
    key = changes.pop("key", b"key")
    job = {"nodes": 6, "spares": 1, "elastic": Elastic(min_nodes=2), "whole_training": TRAINING, "recovery": recovery}
    assignment: Any = SimpleNamespace(job=SimpleNamespace(**job | changes), pod=pod, ranks_per_node=2, key=key)
    return membership_of(assignment)


def is_dealt(nodes: int) -> bool:
    try:
        dealing_of(Training.model_validate(TRAINING), 2 * nodes)
    except ConfigurationError:
        return False
    return True


def test_a_size_can_be_dealt_where_the_trainer_deals_to_it() -> None:
    sizes = range(1, 6)
    assert [choice().can_be_dealt(nodes) for nodes in sizes] == [is_dealt(nodes) for nodes in sizes]
    assert {is_dealt(nodes) for nodes in sizes} == {True, False}


@pytest.mark.parametrize("lacks", [{"in_place": InPlace.NEVER}, {"replaces_pods": False}, {"key": None}])
def test_all_pods_train_where_lost_ones_are_not_replaced_or_nobody_can_tell_who_they_are(lacks: dict[str, Any]) -> None:
    assert not choice().is_fixed
    assert choice(**lacks) == Membership(nodes=6)


def test_a_job_without_spares_and_elastic_has_fixed_members() -> None:
    assert choice(spares=0, elastic=None).is_fixed
