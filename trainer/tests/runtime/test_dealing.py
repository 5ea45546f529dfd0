"""What becomes of a step where there are more, fewer, or too many ranks for its micro-batches."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock_api.training import Training
from oarlock_trainer.runtime.dealing import Dealing, dealing_of
from oarlock_trainer.runtime.errors import ConfigurationError


def training(**fields: Any) -> Training:
    body: dict[str, Any] = {
        "model": {"family": "Flux1", "path": "/models/flux"},
        "steps": 50,
        "data": {"datasets": [{"name": "photos", "source": {"path": "/data"}}]},
    }
    return Training.model_validate(body | fields)


@given(micro_batches=st.integers(1, 200), ranks=st.integers(1, 64))
def test_every_micro_batch_is_dealt_once_and_no_rank_gets_two_more_than_another(micro_batches: int, ranks: int) -> None:
    dealing = Dealing(micro_batches, ranks)
    shares = [dealing.share(rank) for rank in range(ranks)]
    assert sorted(number for share in shares for number in share) == list(range(micro_batches))
    assert max(map(len, shares)) == dealing.passes
    assert min(map(len, shares)) >= dealing.passes - 1
    assert micro_batches * dealing.weight / (dealing.passes * ranks) == pytest.approx(1.0)


@pytest.mark.parametrize(("accumulation", "ranks"), [(1, 1), (3, 5), (7, 32)])
def test_equal_shares_weigh_exactly_one(accumulation: int, ranks: int) -> None:
    dealing = dealing_of(training(gradientAccumulation=accumulation), ranks)
    assert (dealing.passes, dealing.weight) == (accumulation, 1.0)
    assert dealing_of(training(batchSize=2, effectiveBatch=2 * accumulation * ranks), ranks) == dealing


def test_a_size_that_leaves_a_rank_without_a_micro_batch_is_refused_with_the_nearest_ones() -> None:
    with pytest.raises(ConfigurationError) as refused:
        dealing_of(training(batchSize=4, effectiveBatch=16), 6)
    assert str(refused.value) == (
        "training.effectiveBatch 16 is 4 micro-batches of 4, too few for 6 GPUs: take at most 4 of them, or set batchSize "
        "to 2, or set effectiveBatch to 24"
    )


def test_a_job_that_takes_no_steps_is_refused_on_no_number_of_ranks() -> None:
    assert dealing_of(training(task="Preprocess", effectiveBatch=1), 6).passes == 1
