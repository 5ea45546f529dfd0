"""What ranks are given: together the same samples for any number of them, each with the same random numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from dealing import (
    EFFECTIVE,
    ROWS,
    Making,
    Numbers,
    bits,
    loader,
    numbers,
    prepared,
    training,
)

from oarlock_trainer.data.prepared import Prepared
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def global_batch(data: Prepared, step: int, *, ranks: int, per_rank: int, accumulation: int) -> list[Numbers]:
    """All samples of a step in the order of their slots."""
    settings = training(batchSize=per_rank, gradientAccumulation=accumulation)
    each = [numbers(loader(data, settings, rank=rank, ranks=ranks).step(step)) for rank in range(ranks)]
    return [
        sample
        for micro in range(accumulation)
        for own in each
        for sample in own[micro * per_rank : (micro + 1) * per_rank]
    ]


@pytest.mark.parametrize(("ranks", "per_rank", "accumulation"), [(2, 4, 1), (4, 2, 1), (8, 1, 1), (2, 2, 2), (1, 1, 8)])
def test_any_number_of_ranks_computes_the_same_global_batches(
    tmp_path: Path, ranks: int, per_rank: int, accumulation: int
) -> None:
    data = prepared(tmp_path)
    for step in (0, 1, 7, 31):
        alone = global_batch(data, step, ranks=1, per_rank=EFFECTIVE, accumulation=1)
        together = global_batch(data, step, ranks=ranks, per_rank=per_rank, accumulation=accumulation)
        assert together == alone


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 7, 8])
def test_a_fixed_batch_is_dealt_to_any_number_of_ranks_in_as_many_passes_on_each(tmp_path: Path, ranks: int) -> None:
    data = prepared(tmp_path)
    settings = training(batchSize=1, effectiveBatch=EFFECTIVE)
    each = [loader(data, settings, rank=rank, ranks=ranks) for rank in range(ranks)]
    for step in (0, 1, 7, 31):
        alone = global_batch(data, step, ranks=1, per_rank=EFFECTIVE, accumulation=1)
        batches = [one.step(step) for one in each]
        dealt = [numbers(batch) for batch in batches]
        assert [dealt[slot % ranks][slot // ranks] for slot in range(EFFECTIVE)] == alone
        assert sum(map(len, dealt)) == EFFECTIVE
        passes = {len(batch.micro_batches) for batch in batches}
        assert passes == {-(-EFFECTIVE // ranks)}
        # The mean over all passes of all ranks is the mean over the samples.
        counting = {weight for batch in batches for weight in batch.weights if weight}
        assert counting == {passes.pop() * ranks / EFFECTIVE}


def test_a_world_that_changes_size_sees_each_sample_once_an_epoch(tmp_path: Path) -> None:
    """Twelve pictures have one size and eleven the other: their streams, cut at any step, are passes over each."""
    data, settings = prepared(tmp_path), training(batchSize=1, effectiveBatch=EFFECTIVE)
    seen: list[int] = []
    for step in range(69):  # each stream ends with a whole pass: 24 epochs of 23 rows
        ranks = (3, 2, 3, 1, 3)[step // 14]
        each = [loader(data, settings, rank=rank, ranks=ranks) for rank in range(ranks)]
        seen += [row for one in each for row, _, _ in numbers(one.step(step))]
    assert {row: seen.count(row) for row in range(ROWS)} == dict.fromkeys(range(ROWS), 24)


def test_a_step_takes_pictures_of_one_size_each_with_its_own_caption_or_none(tmp_path: Path) -> None:
    data = prepared(tmp_path)
    empty = 2**31 % 2**15
    seen = [sample for step in range(20) for sample in global_batch(data, step, ranks=2, per_rank=4, accumulation=1)]
    for step in range(20):
        rows = [row for row, _, _ in seen[step * EFFECTIVE : (step + 1) * EFFECTIVE]]
        assert len({row % 2 for row in rows}) == 1
    assert all(caption in (row, empty) for row, caption, _ in seen)
    dropped = sum(caption == empty for row, caption, _ in seen if row)
    assert 0.1 < dropped / len(seen) < 0.4


def test_every_rank_has_samples_of_a_bucket_with_fewer_pictures_than_ranks(tmp_path: Path) -> None:
    """SimpleTuner's hole: n x (repeats + 1) is enough in all, and some ranks still get nothing."""
    data = prepared(tmp_path)
    settings = training(batchSize=2, data={"datasets": [{"name": "photos", "source": {"path": "/data"}, "repeats": 8}]})
    for rank in range(16):
        batch = loader(data, settings, rank=rank, ranks=16).step(0)
        assert [len(micro.latents) for micro in batch.micro_batches] == [2]


def test_of_several_captions_each_is_drawn(tmp_path: Path) -> None:
    data = prepared(tmp_path, captions=3)
    settings = training(batchSize=EFFECTIVE, objective={"captionDropout": 0.0})
    one = loader(data, settings)
    seen = {(row, caption % 3) for step in range(40) for row, caption, _ in numbers(one.step(step))}
    assert {caption for _, caption in seen} == {0, 1, 2}
    assert all(caption // 3 == row for step in range(3) for row, caption, _ in numbers(one.step(step)))
    # Who goes on in the middle draws what those before would have drawn.
    assert numbers(loader(data, settings).step(39)) == numbers(one.step(39))


def test_evaluation_pictures_are_never_trained_on_and_each_is_judged_once_with_the_same_noise(tmp_path: Path) -> None:
    data = prepared(tmp_path, ("photos", "unseen"))
    sets = [
        {"name": "photos", "source": {"path": "/a"}},
        {"name": "unseen", "source": {"path": "/b"}, "role": "Evaluation"},
    ]
    settings = training(batchSize=4, data={"datasets": sets})
    each = [loader(data, settings, rank=rank, ranks=2) for rank in range(2)]
    trained = {row for one in each for step in range(30) for row, _, _ in numbers(one.step(step))}
    assert trained == set(range(ROWS))
    judged = [
        [(place, int(bits(sample)[0]), float(sigma)) for one in each for place, batch in one.evaluation()
         for sample, sigma in zip(batch.latents, batch.sigmas, strict=True)]
        for _ in range(2)
    ]  # fmt: skip
    assert judged[0] == judged[1]
    assert sorted(row for _, row, _ in judged[0]) == list(range(ROWS, 2 * ROWS))
    assert {place for place, _, _ in judged[0]} == {1}


def test_with_nothing_to_train_on_the_job_ends_with_what_to_change(tmp_path: Path) -> None:
    data = prepared(tmp_path)
    settings = training(data={"datasets": [{"name": "photos", "source": {"path": "/a"}, "role": "Evaluation"}]})
    with pytest.raises(ConfigurationError, match="role: Train"):
        loader(data, settings)


def test_many_small_buckets_are_dealt_on_over_all_ranks(tmp_path: Path) -> None:
    data = prepared(tmp_path, ("photos", "unseen"))
    sets = [
        {"name": "photos", "source": {"path": "/a"}},
        {"name": "unseen", "source": {"path": "/b"}, "role": "Evaluation"},
    ]
    settings = training(data={"datasets": sets})
    each = [sum(1 for _ in loader(data, settings, rank=rank, ranks=8).evaluation()) for rank in range(8)]
    assert sum(each) == ROWS
    assert max(each) - min(each) <= 1


def on_the_fly(*roles: str) -> dict[str, Any]:
    sets = [
        {"name": role.lower(), "role": role, "source": {"path": f"/{role}"}, "imageEmbeds": {"mode": "OnTheFly"}}
        for role in roles
    ]
    return {"data": {"datasets": sets}, "objective": {"captionDropout": 0.0}}


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_the_next_of_its_bucket_takes_the_place_of_a_picture_that_cannot_be_used_on_any_number_of_ranks(
    tmp_path: Path, ranks: int
) -> None:
    """Even rows have one size, odd rows the other; row 22 is the last even one, so row 0 follows it."""
    data, broken = prepared(tmp_path), {4: 8, 6: 8, 22: 0, 7: 9}
    settings = training(batchSize=EFFECTIVE // ranks, **on_the_fly("Train"))

    def steps(*, without: Sequence[int]) -> list[list[Numbers]]:
        each = [loader(data, settings, rank=rank, ranks=ranks, encoding=Making(without)) for rank in range(ranks)]
        return [[sample for one in each for sample in numbers(one.step(step))] for step in range(6)]

    expected = [
        [(broken.get(row, row), broken.get(row, row), sigma) for row, _, sigma in samples]
        for samples in steps(without=())
    ]
    assert steps(without=list(broken)) == expected
    assert {row for samples in expected for row, _, _ in samples}.isdisjoint(broken)


def test_a_picture_that_cannot_be_used_is_tried_once(tmp_path: Path) -> None:
    data, making = prepared(tmp_path), Making([4])
    one = loader(data, training(batchSize=EFFECTIVE, **on_the_fly("Train")), encoding=making)
    for step in range(12):
        one.step(step)
    assert making.asked.count("4.png") == 1
    assert making.asked.count("8.png") > 1


def test_a_bucket_in_which_no_picture_can_be_used_ends_the_job_with_its_name(tmp_path: Path) -> None:
    data, making = prepared(tmp_path), Making(range(0, ROWS, 2))
    one = loader(data, training(batchSize=EFFECTIVE, **on_the_fly("Train")), encoding=making)
    with pytest.raises(ConfigurationError, match='"train": of the 12 pictures that are trained at 64x64 none'):
        list(map(one.step, range(12)))


def test_evaluation_leaves_out_what_cannot_be_used(tmp_path: Path) -> None:
    data = prepared(tmp_path, ("Train", "Evaluation"))
    settings = training(batchSize=1, **on_the_fly("Train", "Evaluation"))
    one = loader(data, settings, encoding=Making([ROWS, ROWS + 3]))
    judged = [int(bits(sample)[0]) for _, batch in one.evaluation() for sample in batch.latents]
    assert sorted(judged) == [row for row in range(ROWS, 2 * ROWS) if row not in {ROWS, ROWS + 3}]


@pytest.mark.parametrize("captions", [1, 3])
def test_captions_that_are_encoded_now_are_those_that_the_cache_would_give(tmp_path: Path, captions: int) -> None:
    cached = prepared(tmp_path, captions=captions)
    live = replace(cached, texts=None)
    settings = training(batchSize=2)
    for rank in range(2):
        one, other = loader(cached, settings, rank=rank, ranks=2), loader(live, settings, rank=rank, ranks=2)
        for step in range(20):
            for expected, found in zip(one.step(step).micro_batches, other.step(step).micro_batches, strict=True):
                assert bits(found.text).tolist() == bits(expected.text).tolist()
                assert bits(found.pooled).tolist() == bits(expected.pooled).tolist()


def test_masked_texts_have_no_size_of_one_which_would_be_compiled_apart(tmp_path: Path) -> None:
    """The cache's texts have one token here, as those of captions that are left out."""
    masked = {"objective": {"attentionMask": True}, "batchSize": EFFECTIVE}
    (batch,) = loader(prepared(tmp_path), training(**masked)).step(0).micro_batches
    assert batch.text.shape == (EFFECTIVE, 2, 3)
    assert not batch.text[:, 1].any()
    assert batch.text_mask is not None
    assert batch.text_mask.tolist() == [[True, False]] * EFFECTIVE
