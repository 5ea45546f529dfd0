"""Runs that go on with other means than they began with: more ranks, fewer, another engine. The losses go on too."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from gang import Gang, Run

pytestmark = pytest.mark.deep

STEPS = 9
ROUNDING = 5e-3
"""Relative: sums of gradients are rounded to bfloat16 in another order, and that adds up over nine updates."""
GRADIENT_ROUNDING = 3e-2
"""Relative: gradients themselves are bfloat16, of eight bits."""
OPTIMIZER = {"learningRate": 1e-3}


def training(gang: Gang, *, ranks: int, **fields: Any) -> dict[str, Any]:
    """The same samples in each step, whatever the number of ranks; embeddings of their own, or test_runs finds its made."""
    data = gang.data(textEmbeds={"path": str(gang.cache / "t")}, imageEmbeds={"path": str(gang.cache / "i")})
    wanted = {
        "steps": STEPS,
        "batchSize": 4 // ranks,
        "checkpoint": {"intervalSteps": 3},
        "optimizer": OPTIMIZER,
        "data": data,
    }
    return gang.training(**(wanted | fields))


@pytest.fixture(scope="module")
def undisturbed(gang: Gang, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return gang.run(tmp_path_factory.mktemp("undisturbed"), training(gang, ranks=2))


@pytest.mark.parametrize(
    ("fields", "cuts"),
    [
        ({}, (2, 4, 1)),
        ({"engine": {"strategy": "DeepSpeed", "zeroStage": 3}}, (4, 1, 2)),
    ],
    ids=["stage 1: 2 -> 4 -> 1 ranks", "stage 3: 4 -> 1 -> 2 ranks"],
)
def test_a_run_goes_on_with_any_number_of_ranks(
    undisturbed: Run, gang: Gang, tmp_path: Path, fields: dict[str, Any], cuts: tuple[int, ...]
) -> None:
    losses: dict[int, float] = {}
    for attempt, ranks in enumerate(cuts, start=1):
        wanted = training(gang, ranks=ranks, steps=3 * attempt, **fields)
        run = gang.run(tmp_path, wanted, ranks=ranks, attempt=attempt)
        assert run.codes == dict.fromkeys(range(ranks), 0), gang.log()
        assert {event["step"] for event in run.of("resumed")} == ({3 * (attempt - 1)} if attempt > 1 else set())
        losses |= run.losses
    assert losses == pytest.approx(undisturbed.losses, rel=ROUNDING)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_shares_that_are_unequal_make_the_same_step_where_states_are_sharded(
    undisturbed: Run, gang: Gang, tmp_path: Path, stage: int
) -> None:
    """Four micro-batches over three ranks: 2 + 1 + 1. Adam is blind to the scale of gradients, their norm is not."""
    engine = {"strategy": "DeepSpeed", "zeroStage": stage}
    losses, norms = {}, {}
    for attempt, ranks in enumerate((3, 1, 3), start=1):
        wanted = training(gang, ranks=ranks, steps=3 * attempt, batchSize=1, effectiveBatch=4, engine=engine)
        run = gang.run(tmp_path, wanted, ranks=ranks, attempt=attempt)
        assert run.codes == dict.fromkeys(range(ranks), 0), gang.log()
        losses |= run.losses
        norms |= run.norms
    assert losses == pytest.approx(undisturbed.losses, rel=ROUNDING)
    assert norms == pytest.approx(undisturbed.norms, rel=GRADIENT_ROUNDING)


def test_a_run_goes_on_with_another_engine(undisturbed: Run, gang: Gang, tmp_path: Path) -> None:
    kinds: list[dict[str, Any]] = [
        {"engine": {"strategy": "DeepSpeed", "zeroStage": 3}},
        {"engine": {"strategy": "DDP"}},
        {"engine": {"strategy": "DeepSpeed", "zeroStage": 2}},
    ]
    losses: dict[int, float] = {}
    for attempt, fields in enumerate(kinds, start=1):
        run = gang.run(tmp_path, training(gang, ranks=2, steps=3 * attempt, **fields), attempt=attempt)
        assert run.codes == {0: 0, 1: 0}, gang.log()
        losses |= run.losses
    assert losses == pytest.approx(undisturbed.losses, rel=ROUNDING)


def test_another_optimizer_is_no_way_to_go_on(gang: Gang, tmp_path: Path) -> None:
    assert gang.run(tmp_path, training(gang, ranks=2, steps=3)).codes == {0: 0, 1: 0}, gang.log()
    shutil.rmtree(tmp_path / "model")
    lion = training(gang, ranks=2, optimizer={"name": "Lion", "learningRate": 1e-4})
    run = gang.run(tmp_path, lion, attempt=2)
    assert set(run.codes.values()) == {85}
    assert (
        "is of another optimizer: it holds exp_avg, exp_avg_sq, master, this one keeps exp_avg, master" in run.failure
    )


def test_pictures_that_are_only_looked_at_give_the_same_losses_where_weights_are_sharded(
    gang: Gang, tmp_path: Path
) -> None:
    """Five pictures on two ranks: one of them has a batch more."""
    data = gang.data(textEmbeds={"path": str(gang.cache / "t")}, imageEmbeds={"path": str(gang.cache / "i")})
    judged = {"name": "judged", "role": "Evaluation", "size": {"minimum": 65}, "maxSamples": 5}
    data["datasets"].append(data["datasets"][0] | judged)
    found = {}
    for stage in (1, 3):
        engine = {"strategy": "DeepSpeed", "zeroStage": stage}
        output = tmp_path / str(stage)
        fields = {"batchSize": 1, "data": data, "engine": engine, "ema": {"decay": 0.6}}
        run = gang.run(output, training(gang, ranks=2, steps=2, **fields))
        assert run.codes == {0: 0, 1: 0}, gang.log()
        lines = map(json.loads, (output / "metrics.jsonl").read_text().splitlines())
        found[stage] = [line["evaluationLoss"]["judged"] for line in lines if "evaluationLoss" in line]
    assert len(found[1]) == 1
    assert found[3] == pytest.approx(found[1], rel=ROUNDING)
