"""Real ranks over gloo: however the work is spread, the numbers are the same, and the same as DDP's, which shards nothing.

One rank's weights are bfloat16 in all of them: sums in another order round differently, by about 1 in 10,000 of the loss
after some steps. Where the order is the same, the numbers are, to the last digit.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_api.optimization import Optimizer
from oarlock_local.pytest_tiers import quick_first
from oarlock_trainer.engine.learning_rate import learning_rate

if TYPE_CHECKING:
    from forked import Forks

_PROGRAM = Path(__file__).parents[1] / "support" / "engine_ranks.py"
STEPS = 6
BFLOAT16 = 5e-4
"""Tolerance of losses, relative, where sums are taken in another order."""
STAGES = [0, 1, 2, 3]
"""0 is DDP."""


def case(
    stage: int, *, overlap: bool = True, accumulation: int = 1, poison: int | None = None, **fields: Any
) -> dict[str, Any]:
    engine: dict[str, Any] = {"strategy": "DDP"}
    if stage:
        engine = {"strategy": "DeepSpeed", "zeroStage": stage}
    training = {
        "engine": engine | {"overlapCommunication": overlap},
        "gradientAccumulation": accumulation,
        "optimizer": {"learningRate": 2e-3},
    }
    return {"training": training | fields, "steps": STEPS, "poison": poison}


def trained(forks: Forks, ranks: int, cases: list[dict[str, Any]], store: Path) -> list[dict[str, Any]]:
    """Every case's answer."""
    for one in cases:
        one["training"]["batchSize"] = 16 // ranks // one["training"]["gradientAccumulation"]
    done = forks(_PROGRAM, store, ranks, given=json.dumps(cases))
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


WAYS = [(stage, overlap, 1) for stage in STAGES for overlap in (True, False)]
WAYS += [(stage, True, 4) for stage in STAGES] + [(1, False, 4)]
"""(stage, overlap, accumulation)."""


@pytest.fixture(scope="module")
def ways(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Any]:
    """Two ranks, in each way of spreading the work."""
    cases = [case(stage, overlap=overlap, accumulation=accumulation) for stage, overlap, accumulation in WAYS]
    return dict(zip(WAYS, trained(forks, 2, cases, tmp_path_factory.mktemp("ways") / "store"), strict=True))


def test_the_model_learns(ways: dict[Any, Any]) -> None:
    losses = ways[1, True, 1]["losses"]
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_with_and_without_overlap_has_the_same_losses_norms_and_weights(
    ways: dict[Any, Any], stage: int
) -> None:
    expected = ways[0, True, 1]
    for found in (ways[stage, True, 1], ways[stage, False, 1]):
        assert found["losses"] == expected["losses"]
        assert found["norms"] == pytest.approx(expected["norms"], rel=1e-5)
        assert found["ended"] == expected["ended"]


@pytest.mark.parametrize("stage", STAGES)
def test_accumulated_micro_batches_train_as_one_batch_of_their_size(ways: dict[Any, Any], stage: int) -> None:
    found = ways[stage, True, 4]
    assert found["losses"] == pytest.approx(ways[stage, True, 1]["losses"], rel=BFLOAT16)
    assert len(found["rates"]) == STEPS


@pytest.mark.parametrize("stage", [1, 2])
def test_no_micro_batch_waits_for_all_that_the_device_was_given(ways: dict[Any, Any], stage: int) -> None:
    """On a GPU, copies of checkpoints and the VAE's pictures would be waited for as well."""
    assert ways[stage, True, 4]["waits"] == 0


def test_overlap_changes_nothing_where_micro_batches_are_accumulated(ways: dict[Any, Any]) -> None:
    assert ways[1, False, 4]["losses"] == ways[1, True, 4]["losses"]


def test_stage_2_loses_nothing_of_small_micro_batches_beside_a_large_one(forks: Forks, tmp_path: Path) -> None:
    wanted = case(2, accumulation=4, gradientClipping={"method": "None"})
    (found,) = trained(forks, 2, [wanted | {"gradients": [256, 1, 1, 1], "steps": 2}], tmp_path / "store")
    assert found["largest"] == [64.75, 64.75]  # in bfloat16 each sum would be rounded back to 64


@pytest.mark.parametrize("stage", STAGES)
def test_making_an_engine_moves_no_weight_and_counts_no_update(ways: dict[Any, Any], stage: int) -> None:
    found = ways[stage, True, 1]
    assert found["made"] == found["before"]
    assert len(found["rates"]) == found["counted"] == STEPS


@pytest.fixture(scope="module", params=[1, 2, 4])
def scheduled(forks: Forks, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The same training on another number of ranks, with a schedule."""
    store = tmp_path_factory.mktemp("scheduled") / "store"
    (found,) = trained(forks, request.param, [case(1, accumulation=2, optimizer=SCHEDULED)], store)
    return found


SCHEDULED = {"learningRate": 2e-3, "schedule": {"name": "Cosine", "warmupSteps": 2, "endLearningRate": 1e-4}}


def test_the_rate_of_every_update_is_the_formulas_on_any_number_of_ranks(scheduled: dict[str, Any]) -> None:
    settings = Optimizer.model_validate(SCHEDULED)
    assert scheduled["rates"] == [learning_rate(settings, step, STEPS) for step in range(STEPS)]


@pytest.fixture(scope="module")
def alone(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """On one rank, with nothing accumulated."""
    (found,) = trained(forks, 1, [case(0, optimizer=SCHEDULED)], tmp_path_factory.mktemp("alone") / "store")
    return found


def test_the_same_batch_trains_alike_on_any_number_of_ranks(scheduled: dict[str, Any], alone: dict[str, Any]) -> None:
    assert scheduled["losses"] == pytest.approx(alone["losses"], rel=BFLOAT16)


OPTIMIZERS = {"Lion": {"learningRate": 5e-4}, "AdamW8Bit": {"learningRate": 2e-3}}
CLIPPINGS = [{"method": "None"}, {"method": "Norm", "max": 0.1}, {"method": "Value", "max": 0.001}]


@pytest.fixture(scope="module")
def others(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Any]:
    """Stage -> other optimizers, ways of clipping, and a gradient that is not finite; two ranks each."""
    asked = {
        (name, stage): case(stage, optimizer={"name": name} | fields)
        for stage in STAGES
        for name, fields in OPTIMIZERS.items()
    }
    asked |= {(one["method"], stage): case(stage, gradientClipping=one) for stage in STAGES for one in CLIPPINGS}
    asked |= {
        (on, stage): case(stage, optimizer={"learningRate": 1e-1, "weightDecay": 1.0, "weightDecayOn": on})
        for stage in STAGES
        for on in ("All", "Matrices")
    }
    asked |= {("poison", stage): case(stage, poison=3) for stage in STAGES}
    found = trained(forks, 2, list(asked.values()), tmp_path_factory.mktemp("others") / "store")
    return dict(zip(asked, found, strict=True))


@pytest.mark.parametrize("stage", quick_first(STAGES))
def test_lion_trains_alike_in_every_stage(others: dict[Any, Any], stage: int) -> None:
    losses = others["Lion", stage]["losses"]
    assert losses == pytest.approx(others["Lion", 0]["losses"], rel=BFLOAT16)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("stage", quick_first(STAGES))
def test_weight_decay_of_matrices_alone_trains_alike_in_every_stage_and_differs_from_that_of_all(
    others: dict[Any, Any], stage: int
) -> None:
    losses = others["Matrices", stage]["losses"]
    assert losses == pytest.approx(others["Matrices", 0]["losses"], rel=BFLOAT16)
    assert losses[-1] != pytest.approx(others["All", stage]["losses"][-1], rel=BFLOAT16)


@pytest.mark.parametrize("stage", STAGES)
def test_adamw_with_8_bits_trains_as_adamw_does_within_two_in_a_thousand(
    others: dict[Any, Any], ways: dict[Any, Any], stage: int
) -> None:
    assert others["AdamW8Bit", stage]["losses"] == pytest.approx(ways[stage, True, 1]["losses"], rel=2e-3)


@pytest.mark.parametrize("stage", STAGES)
def test_elements_are_clipped_before_the_update_and_the_norm_is_that_from_before(
    others: dict[Any, Any], stage: int
) -> None:
    unbounded, found = others["None", stage], others["Value", stage]
    assert min(unbounded["largest"]) > 0.01
    assert max(found["largest"]) == pytest.approx(0.001)
    assert found["norms"][0] == pytest.approx(unbounded["norms"][0], rel=1e-5)
    assert found["losses"] == pytest.approx(others["Value", 0]["losses"], rel=BFLOAT16)


@pytest.mark.parametrize("stage", STAGES)
def test_the_global_norm_is_clipped_before_the_update_and_reported_from_before(
    others: dict[Any, Any], stage: int
) -> None:
    unbounded, found = others["None", stage], others["Norm", stage]
    assert found["norms"][0] == pytest.approx(unbounded["norms"][0], rel=1e-5)
    assert found["norms"][0] > 0.1
    shrunk = 0.1 / found["norms"][0]
    assert found["largest"][0] == pytest.approx(shrunk * unbounded["largest"][0], rel=1e-3)


@pytest.mark.parametrize("stage", STAGES)
def test_a_gradient_that_is_not_finite_on_one_rank_skips_the_update_on_all_and_is_counted(
    others: dict[Any, Any], stage: int
) -> None:
    found = others["poison", stage]
    assert found["skipped"] == 1
    assert found["counted"] == len(found["rates"]) == STEPS - 1
    assert [math.isfinite(loss) for loss in found["losses"]] == [True, True, True, False, True, True]
    assert found["losses"][4] < found["losses"][0]
