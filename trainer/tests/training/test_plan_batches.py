"""What a step takes, and the one message that names every bucket which cannot fill it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock_trainer.errors import ConfigurationError
from oarlock_trainer.plan.batches import Batch, BucketSize, fit, least_repeats

BATCH = Batch(per_rank=8, ranks=32, accumulation=1)


def bucket(aspect: float, pictures: int, repeats: int = 0, dataset: str = "photos") -> BucketSize:
    return BucketSize(dataset=dataset, aspect=aspect, pictures=pictures, repeats=repeats)


def test_one_error_lists_all_failing_buckets_of_all_datasets() -> None:
    sizes = [bucket(1.0, 4000), bucket(0.75, 96), bucket(1.78, 31), bucket(1.0, 7, dataset="scans")]
    with pytest.raises(ConfigurationError) as raised:
        fit(sizes, BATCH, repeat_small=False)
    message = str(raised.value)
    assert 'dataset "photos": 2 of 3 aspect buckets hold less than one optimizer step' in message
    assert 'dataset "scans": 1 of 1 aspect bucket holds less than one optimizer step' in message
    assert "effective batch 256 = 8 per GPU x 32 GPUs x 1 accumulation" in message


def test_the_error_names_count_need_repeats_and_remedies() -> None:
    with pytest.raises(ConfigurationError) as raised:
        fit([bucket(0.75, 96), bucket(1.78, 31)], BATCH, repeat_small=False)
    lines = [line.split() for line in str(raised.value).splitlines()]
    assert ["0.75", "96", "1", "96", "160", "2"] in lines
    assert ["1.78", "31", "1", "31", "225", "8"] in lines
    message = str(raised.value)
    assert "batchSize 1 (then 1.78 still misses 1)" in message
    assert "at most 3 GPUs" in message
    assert "repeats: 8" in message
    assert "data.smallBuckets: Repeat (1.78 is then seen 9 times an epoch)" in message


def test_remedies_change_no_more_than_they_must_and_ask_for_nothing_that_is_so_already() -> None:
    with pytest.raises(ConfigurationError) as raised:
        fit([bucket(0.75, 96)], Batch(per_rank=8, ranks=2, accumulation=8), repeat_small=False)
    assert "batchSize 6; gradientAccumulation 6; at most 1 GPU; repeats: 1;" in str(raised.value)
    with pytest.raises(ConfigurationError) as raised:
        fit([bucket(0.75, 3)], Batch(per_rank=8, ranks=1, accumulation=1), repeat_small=False)
    assert "Any of these mends it: batchSize 3; repeats: 2;" in str(raised.value)
    assert "GPU;" not in str(raised.value)
    assert "nodes" not in str(raised.value)


@given(st.integers(1, 3000), st.integers(1, 16), st.integers(1, 16), st.integers(1, 16))
def test_each_smaller_number_that_is_proposed_fills_the_step_and_one_more_does_not(
    pictures: int, per_rank: int, ranks: int, accumulation: int
) -> None:
    batch = Batch(per_rank=per_rank, ranks=ranks, accumulation=accumulation)
    small = bucket(1.0, pictures)
    try:
        fit([small], batch, repeat_small=False)
    except ConfigurationError as error:
        found = re.findall(r"(batchSize|gradientAccumulation|at most) (\d+)(?! \(then)(?=;| GPUs?;)", str(error))
    else:
        return
    fields = {"batchSize": "per_rank", "gradientAccumulation": "accumulation", "at most": "ranks"}
    for name, number in found:
        field = fields[name]
        assert replace(batch, **{field: int(number)}).effective <= pictures
        assert replace(batch, **{field: int(number) + 1}).effective > pictures


def test_repeat_gives_each_small_bucket_the_least_passes_and_leaves_large_ones_alone() -> None:
    fitted = fit([bucket(1.0, 300), bucket(1.78, 31)], BATCH, repeat_small=True)
    assert [one.repeats for one in fitted] == [0, 8]


def test_repeat_does_not_override_repeats_set_by_hand() -> None:
    with pytest.raises(ConfigurationError, match="repeats"):
        fit([bucket(1.78, 31, repeats=1)], BATCH, repeat_small=True)


@given(st.integers(1, 10_000), st.integers(1, 4096))
def test_the_least_repeats_fill_a_step_and_one_less_does_not(pictures: int, effective: int) -> None:
    repeats = least_repeats(pictures, effective)
    assert pictures * (repeats + 1) >= effective
    assert repeats == 0 or pictures * repeats < effective
