"""Masks in batches: each sample has that of its own picture, the way that it is shown, whoever computes it and when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from dealing import EFFECTIVE, MASK, MIRRORED, Making, bits, loader, prepared, training

if TYPE_CHECKING:
    from pathlib import Path

    from oarlock_api.training import Training
    from oarlock_trainer.data.batches import Loader, StepBatch

STEPS = 30
CONDITIONING = {"kind": "Mask", "source": {"path": "/masks"}}


def masked(mode: str = "Cache", role: str = "Train", **fields: Any) -> Training:
    sets = [
        {
            "name": "photos", "source": {"path": "/data"}, "conditioning": CONDITIONING, "role": role,
            "randomFlip": role == "Train", "imageEmbeds": {"mode": mode},
        }
    ]  # fmt: skip
    return training(**{"batchSize": EFFECTIVE, "data": {"datasets": sets}} | fields)


def dealt(batch: StepBatch) -> list[tuple[int, int]]:
    """(picture, mask) of each sample."""
    found = []
    for micro in batch.micro_batches:
        assert micro.loss_mask is not None
        assert micro.loss_mask.shape == (len(micro.latents), 1, *micro.latents.shape[2:])
        pairs = zip(micro.latents, micro.loss_mask, strict=True)
        found += [(int(bits(latents)[0]), int(bits(mask)[0])) for latents, mask in pairs]
    return found


def samples(one: Loader, steps: range = range(STEPS)) -> list[tuple[int, int]]:
    return [sample for step in steps for sample in dealt(one.step(step))]


@pytest.mark.parametrize("mode", ["Cache", "OnDemand", "OnTheFly"])
def test_each_sample_has_the_mask_of_its_picture_the_way_that_it_is_shown(tmp_path: Path, mode: str) -> None:
    found = samples(loader(prepared(tmp_path, masked=True), masked(mode), encoding=Making([])))
    assert all(mask == picture + MASK for picture, mask in found)
    assert {picture >= MIRRORED for picture, _ in found} == {False, True}


@pytest.mark.parametrize(("ranks", "accumulation"), [(8, 1), (2, 2), (4, 1)])
def test_any_number_of_ranks_gets_the_same_masks(tmp_path: Path, ranks: int, accumulation: int) -> None:
    data, per_rank = prepared(tmp_path, masked=True), EFFECTIVE // ranks // accumulation
    settings = masked(batchSize=per_rank, gradientAccumulation=accumulation)
    each = [loader(data, settings, rank=rank, ranks=ranks) for rank in range(ranks)]
    alone = loader(data, masked())
    for step in range(STEPS):
        own = [dealt(one.step(step)) for one in each]
        parts = (some[micro * per_rank : (micro + 1) * per_rank] for micro in range(accumulation) for some in own)
        assert [sample for part in parts for sample in part] == dealt(alone.step(step))


def test_who_begins_at_a_later_step_gets_what_an_undisturbed_run_gets_there(tmp_path: Path) -> None:
    data = prepared(tmp_path, masked=True)
    assert samples(loader(data, masked()), range(17, STEPS)) == samples(loader(data, masked()))[17 * EFFECTIVE :]


def test_another_picture_takes_the_place_of_one_whose_mask_cannot_be_used(tmp_path: Path) -> None:
    data, making = prepared(tmp_path, masked=True), Making([], masks=[4])
    whole = samples(loader(data, masked("OnTheFly"), encoding=Making([])))
    found = samples(loader(data, masked("OnTheFly"), encoding=making))
    place = {4: 6, 4 + MIRRORED: 6 + MIRRORED}
    assert [picture for picture, _ in found] == [place.get(picture, picture) for picture, _ in whole]
    assert all(mask == picture + MASK for picture, mask in found)
    assert making.asked.count("mask-4.png") == 2  # each way once


def test_references_are_dealt_as_masks_are_and_counted_as_tokens(tmp_path: Path) -> None:
    conditioning = CONDITIONING | {"kind": "Reference"}
    kontext = {"family": "Flux1", "flavor": "Kontext", "path": "/m"}
    sets = [{"name": "photos", "source": {"path": "/data"}, "conditioning": conditioning, "randomFlip": True}]
    data = prepared(tmp_path, masked=True)
    paired = loader(data, training(batchSize=EFFECTIVE, model=kontext, data={"datasets": sets}))
    alone = loader(data, training(batchSize=EFFECTIVE, data={"datasets": [sets[0] | {"conditioning": None}]}))
    for step in range(4):
        batch, plain = paired.step(step), alone.step(step)
        (micro,), (bare,) = batch.micro_batches, plain.micro_batches
        assert micro.reference is not None
        assert (micro.loss_mask, bare.reference) == (None, None)
        pairs = zip(micro.latents, micro.reference, strict=True)
        assert all(int(bits(reference)[0]) == int(bits(latents)[0]) + MASK for latents, reference in pairs)
        assert batch.tokens - plain.tokens == micro.latents.shape[-1] * micro.latents.shape[-2] // 4
        assert micro.sigmas.tolist() == bare.sigmas.tolist()  # the shift of noise levels is the picture's own


def test_pictures_that_are_judged_have_their_masks_as_well(tmp_path: Path) -> None:
    sets = [
        {"name": "photos", "source": {"path": "/a"}},
        {"name": "unseen", "source": {"path": "/b"}, "conditioning": CONDITIONING, "role": "Evaluation"},
    ]
    one = loader(prepared(tmp_path, ("photos", "unseen"), masked=True), training(data={"datasets": sets}, batchSize=2))
    judged = list(one.evaluation())
    assert {dataset for dataset, _ in judged} == {1}
    for _, micro in judged:
        assert micro.loss_mask is not None
        assert [int(bits(mask)[0]) for mask in micro.loss_mask] == [int(bits(own)[0]) + MASK for own in micro.latents]
    assert one.step(0).micro_batches[0].loss_mask is None
