"""A step is the same on any number of ranks: what is trained, and what comes of it, in a world that shrinks and grows."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
import torch

from oarlock_trainer.checkpoint.format import valid_checkpoints
from oarlock_trainer.checkpoint.weights import Weights

if TYPE_CHECKING:
    from pathlib import Path

    from gang import Gang

pytestmark = pytest.mark.deep

PICTURES = 24
EFFECTIVE = 8
"""Over 3 ranks 3 + 3 + 2, over 2 ranks 4 + 4."""
STEPS = 9
"""Three epochs."""
CUTS = [(3, 2), (2, 4), (3, 5), (1, 7), (3, STEPS)]
"""(ranks, up to which step): each change but one is in the middle of an epoch."""
TOLERANCE = 1e-5
"""Relative. A sum of eight gradients in another order differs by some 1e-7, float32's last bit, and nine updates add that
up: 7e-7 was seen at most. A micro-batch that counts twice, or with another share's weight, shows from 1e-2 on.
"""


@dataclass(frozen=True)
class Trained:
    """What came of all attempts: (picture, draws) of each step's samples, losses, gradient norms, and the last weights."""

    samples: dict[int, Counter[tuple[str, str]]]
    losses: dict[int, float]
    norms: dict[int, float]
    weights: dict[str, torch.Tensor]


def train(gang: Gang, home: Path, cuts: list[tuple[int, int]], **fields: Any) -> Trained:
    """Attempts on so many ranks up to such steps, each from the checkpoint of the one before."""
    data = gang.data(textEmbeds={"path": str(gang.cache / "tw")}, imageEmbeds={"path": str(gang.cache / "iw")})
    output, losses, norms = home / "output", {}, {}
    for attempt, (ranks, steps) in enumerate(cuts, start=1):
        written = home / str(attempt)
        written.mkdir()
        settings = {
            "steps": steps, "batchSize": 1, "effectiveBatch": EFFECTIVE, "aspectBuckets": False, "data": data,
            "optimizer": {"learningRate": 1e-3}, "checkpoint": {"intervalSteps": 100}, "ema": {"decay": 0.6},
        }  # fmt: skip
        training, told = gang.training(**(settings | fields)), {"WRITE_DOWN": str(written)}
        run = gang.run(output, training, ranks=ranks, attempt=attempt, environment=told)
        assert run.codes == dict.fromkeys(range(ranks), 0), gang.log()
        losses |= run.losses
        norms |= run.norms
    samples: dict[int, Counter[tuple[str, str]]] = defaultdict(Counter)
    for file in home.glob("[0-9]*/*.jsonl"):
        for line in map(json.loads, file.read_text().splitlines()):
            samples[line["step"]][line["picture"], line["drawn"]] += 1
    last = next(iter(valid_checkpoints(output)))
    assert last.step == STEPS
    found = Weights(last)
    weights = {name: found.read(name, (size,)) for name, size in found.sizes.items()}
    return Trained(samples, losses, norms, weights)


@pytest.fixture(scope="module", params=["Full", "LoRA"])
def both(
    request: pytest.FixtureRequest, gang: Gang, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Trained, Trained]:
    """The same training on three ranks throughout, and on 3 -> 2 -> 3 -> 1 -> 3."""
    fields = {"method": request.param, "engine": {"strategy": "DDP"}}
    if request.param == "LoRA":
        fields["lora"] = {"rank": 4, "dropout": 0.2}
    fixed = train(gang, tmp_path_factory.mktemp("fixed"), [(3, STEPS)], **fields)
    return fixed, train(gang, tmp_path_factory.mktemp("elastic"), CUTS, **fields)


def test_each_step_has_the_same_samples_with_the_same_draws(both: tuple[Trained, Trained]) -> None:
    fixed, elastic = both
    assert elastic.samples == fixed.samples
    assert {step: counts.total() for step, counts in elastic.samples.items()} == dict.fromkeys(range(STEPS), EFFECTIVE)


def test_each_picture_is_trained_exactly_once_an_epoch(both: tuple[Trained, Trained]) -> None:
    epoch = PICTURES // EFFECTIVE
    for first, end in pairwise(range(0, STEPS + 1, epoch)):
        seen = Counter(picture for step in range(first, end) for picture, _ in both[1].samples[step].elements())
        assert len(seen) == PICTURES
        assert set(seen.values()) == {1}


def test_losses_gradients_and_weights_are_those_of_the_fixed_size_but_for_the_order_of_float32_sums(
    both: tuple[Trained, Trained],
) -> None:
    fixed, elastic = both
    assert elastic.losses == pytest.approx(fixed.losses, rel=TOLERANCE)
    assert elastic.norms == pytest.approx(fixed.norms, rel=TOLERANCE)
    away = {name: float((elastic.weights[name] - there).norm() / there.norm()) for name, there in fixed.weights.items()}
    assert away == pytest.approx(dict.fromkeys(fixed.weights, 0.0), abs=TOLERANCE)
