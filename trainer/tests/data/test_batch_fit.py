"""What a step takes, and the one message that names every bucket which cannot fill it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock_trainer.data.batch_fit import Batch, BucketSize, fit, layout, least_repeats
from oarlock_trainer.runtime.errors import ConfigurationError

BATCH = Batch(per_rank=8, ranks=32, accumulation=1)


def bucket(aspect: float, pictures: int, repeats: int = 0, dataset: str = "photos") -> BucketSize:
    return BucketSize(dataset=dataset, aspect=aspect, pictures=pictures, repeats=repeats)


def refused(buckets: list[BucketSize], batch: Batch, *, repeat_small: bool = False) -> str:
    """What is said of buckets that cannot fill a step; nothing where they can."""
    try:
        fit(buckets, batch, repeat_small=repeat_small)
    except ConfigurationError as error:
        return str(error)
    return ""


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
    assert message.endswith(
        "Any of these mends it: at most 3 GPUs (nodes: 1 with gpusPerNode: 3); repeats: 8; data.smallBuckets: Repeat (1.78 "
        "is then seen 9 times an epoch); more pictures."
    )


def test_a_fixed_step_is_told_in_micro_batches_and_mended_by_a_smaller_one() -> None:
    batch = Batch(per_rank=2, ranks=3, accumulation=6, micro_batches=16)
    message = refused([bucket(1.0, 25)], batch)
    assert "effective batch 32 = 2 per micro-batch x 16 micro-batches, at most 6 on each of 3 GPUs" in message
    assert "Any of these mends it: effectiveBatch 24; repeats: 1;" in message


def test_remedies_change_no_more_than_they_must_and_ask_for_nothing_that_is_so_already() -> None:
    with pytest.raises(ConfigurationError) as raised:
        fit([bucket(0.75, 96)], Batch(per_rank=8, ranks=2, accumulation=8), repeat_small=False)
    assert "batchSize 6; gradientAccumulation 6; at most 1 GPU (nodes: 1 with gpusPerNode: 1); repeats: 1;" in str(
        raised.value
    )
    with pytest.raises(ConfigurationError) as raised:
        fit([bucket(0.75, 3)], Batch(per_rank=8, ranks=1, accumulation=1), repeat_small=False)
    assert "Any of these mends it: batchSize 3; repeats: 2;" in str(raised.value)
    assert "GPU;" not in str(raised.value)
    assert "nodes" not in str(raised.value)


@pytest.mark.parametrize(
    ("pictures", "said"),
    [
        (12 * 8, "at most 12 GPUs (nodes: 2 with gpusPerNode: 6)"),
        (13 * 8, "at most 12 GPUs (nodes: 2 with gpusPerNode: 6)"),  # 13 nodes, or a node of 13, is not what there is
        (31 * 8, "at most 28 GPUs (nodes: 4 with gpusPerNode: 7)"),
        (16 * 8, "at most 16 GPUs (nodes: 2 with gpusPerNode: 8)"),
    ],
)
def test_fewer_gpus_are_as_many_as_nodes_and_gpus_per_node_can_say(pictures: int, said: str) -> None:
    assert said in refused([bucket(1.0, pictures)], BATCH)


@given(most=st.integers(1, 64), nodes=st.integers(1, 8), gpus=st.integers(1, 8))
def test_a_layout_has_no_more_nodes_gpus_and_ranks_than_there_may_be(most: int, nodes: int, gpus: int) -> None:
    batch = Batch(per_rank=1, ranks=nodes * gpus, accumulation=1, ranks_per_node=gpus)
    found = layout(most, batch)
    assert 1 <= found[0] <= nodes
    assert 1 <= found[1] <= gpus
    assert found[0] * found[1] <= most
    assert found[0] * found[1] == most or most % gpus or most > nodes * gpus


def test_fewer_aspects_are_proposed_where_the_pictures_are_enough_together() -> None:
    small = Batch(per_rank=2, ranks=4, accumulation=1)
    assert "crop to fewer aspects" in refused([bucket(1.0, 6), bucket(0.5, 2)], small)
    assert "crop to fewer aspects" not in refused([bucket(1.0, 5), bucket(0.5, 2)], small)
    assert "crop to fewer aspects" not in refused([bucket(1.0, 6)], small)


@given(
    pictures=st.lists(st.integers(1, 3000), min_size=1, max_size=3),
    repeats=st.integers(0, 3),
    batch=st.builds(Batch, per_rank=st.integers(1, 16), ranks=st.integers(1, 16), accumulation=st.integers(1, 16)),
    repeat_small=st.booleans(),
)
def test_whatever_is_proposed_fits_when_it_is_done_and_no_larger_number_does(
    pictures: list[int], repeats: int, batch: Batch, *, repeat_small: bool
) -> None:
    buckets = [bucket(1.0 + number, count, repeats) for number, count in enumerate(pictures)]
    said = refused(buckets, batch, repeat_small=repeat_small)
    proposed = said.rpartition("mends it: ")[2].removesuffix(".").split("; ") if said else []
    fields = {"batchSize": "per_rank", "gradientAccumulation": "accumulation", "at most": "ranks"}
    for words in proposed:
        numbers = re.findall(r"(batchSize|gradientAccumulation|at most) (\d+)", words)
        changed = replace(batch, **{fields[name]: int(number) for name, number in numbers})
        passes = int(words.removeprefix("repeats: ")) if words.startswith("repeats: ") else repeats
        others = [replace(one, repeats=0 if "no repeats" in words else passes) for one in buckets]
        if "more pictures" in words:
            continue
        if "fewer aspects" in words:
            others = [bucket(1.0, sum(pictures), repeats)]
        assert refused(others, changed, repeat_small=repeat_small or "Repeat" in words) == "", words
        for name, number in numbers:
            larger = _next_layout(int(number), batch) if name == "at most" else int(number) + 1
            more = replace(changed, **{fields[name]: larger})
            assert refused(buckets, more), words


def _next_layout(ranks: int, batch: Batch) -> int:
    """The fewest GPUs that are more, on nodes as the batch has them."""
    nodes = -(-batch.ranks // batch.ranks_per_node)
    sizes = {number * gpus for number in range(1, nodes + 1) for gpus in range(1, batch.ranks_per_node + 1)}
    return min((size for size in sizes if size > ranks), default=ranks + 1)


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
