"""What ranks are given: together the same samples for any number of them, each with the same random numbers."""

from __future__ import annotations

import itertools
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from oarlock_api.data import Compression
from oarlock_api.training import Training
from oarlock_trainer.data.batches import Loader
from oarlock_trainer.data.grouping import make_buckets, make_timeline
from oarlock_trainer.data.metadata.table import Manifest, Part, Table, write_part
from oarlock_trainer.data.places import Places, resolve
from oarlock_trainer.data.prefetch import Prefetcher
from oarlock_trainer.data.records import pack
from oarlock_trainer.data.shards import Shard
from oarlock_trainer.errors import ConfigurationError, StorageError
from oarlock_trainer.job import Place
from oarlock_trainer.plan.batches import Batch
from oarlock_trainer.preprocess.pipeline import Prepared
from oarlock_trainer.storage.local import LocalFiles

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from oarlock_trainer.data.batches import Encoding, Record, StepBatch
    from oarlock_trainer.data.metadata.table import Picture

SIZES = ((64, 64), (96, 48))
ROWS = 23
EFFECTIVE = 8
Numbers = tuple[int, int, float]
"""A picture, its caption, and the noise level that was drawn."""


class NeverEncoding:
    """For datasets that are all encoded beforehand."""

    def encode(self, pictures: Sequence[Picture]) -> Sequence[Record]:
        raise AssertionError(f"{len(pictures)} pictures have latents in the cache")

    def close(self) -> None:
        """Nothing to publish."""


class Making:
    """Makes the latents of rows that are not `broken`, as the cache would hold them."""

    def __init__(self, broken: Sequence[int]) -> None:
        self.broken = [f"{number}.png" for number in broken]
        self.asked: list[str] = []

    def encode(self, pictures: Sequence[Picture]) -> Sequence[Record | None]:
        self.asked += [picture.name for picture in pictures]
        return [None if picture.name in self.broken else self._record(picture) for picture in pictures]

    def close(self) -> None:
        """Nothing to publish."""

    def _record(self, picture: Picture) -> Record:
        shape = (4, picture.target_height // 8, picture.target_width // 8)
        return np.full(shape, int(picture.name.removesuffix(".png")), dtype=np.uint16).reshape(-1), shape


def training(**fields: Any) -> Training:
    body: dict[str, Any] = {
        "model": {"family": "Flux1", "path": "/models/flux"},
        "steps": 50,
        "data": {"datasets": [{"name": "photos", "source": {"path": "/data"}}]},
        "objective": {"captionDropout": 0.25},
    }
    return Training.model_validate(body | fields)


def prepared(folder: Path, datasets: Sequence[str] = ("photos",), captions: int = 1) -> Prepared:
    """Rows of both sizes, whose latents hold the row's number and whose texts hold the caption's."""
    store, latents, texts = LocalFiles(folder / "embeds", field="data"), Shard(), Shard()
    parts = []
    for place, _ in enumerate(datasets):
        numbers = [place * ROWS + row for row in range(ROWS)]
        words = [[number * captions + nth for nth in range(captions)] for number in numbers]
        sizes = [SIZES[number % 2] for number in numbers]
        columns = {
            "name": [f"{number}.png" for number in numbers],
            "width": [width for width, _ in sizes],
            "height": [height for _, height in sizes],
            "target_width": [width for width, _ in sizes],
            "target_height": [height for _, height in sizes],
            "captions": [[str(word) for word in some] for some in words],
            "image_key": [number.to_bytes(16, "little") for number in numbers],
            "text_keys": [[word.to_bytes(16, "big") for word in some] for some in words],
        }
        write_part(folder, f"{place}.arrow", columns)
        parts.append(Part(file=f"{place}.arrow", dataset=place, rows=ROWS))
        for number, (width, height) in zip(numbers, sizes, strict=True):
            values = np.full((4, height // 8, width // 8), number, dtype=np.uint16)
            latents.append(pack(number.to_bytes(16, "little"), values, values.shape, Compression.NONE))
        for word in (word for some in words for word in some):
            texts.append(text(word))
    texts.append(text(2**31))
    latents.publish(store)
    texts.publish(LocalFiles(folder / "texts", field="data"))
    manifest = Manifest(fingerprint="f", job_uid="u", datasets=tuple(datasets), parts=tuple(parts))
    table = Table(folder, manifest)
    empty = np.frombuffer((2**31).to_bytes(16, "big"), dtype="<u8").reshape(1, 2)
    places = folder / "places"
    text_store = LocalFiles(folder / "texts", field="data")
    found = resolve(places, "latents", asked="l", keys=table.image_keys, stores=[store])
    said = resolve(
        places, "texts", asked="t", keys=lambda: np.concatenate([table.text_keys(), empty]), stores=[text_store]
    )
    return Prepared(
        table=table,
        buckets=[],  # made by each test, for its own batch
        latents=Places(found, [store]),
        texts=Places(said, [text_store]),
        empty_text=len(table.text_keys()),
        fingerprint="f",
    )


def text(word: int) -> Any:
    # A CLIP vector of two values and a T5 sequence of one token and width three.
    values = np.full(5, word % 2**15, dtype=np.uint16)
    return pack(word.to_bytes(16, "big"), values, (1, 3, 2), Compression.NONE)


def loader(
    data: Prepared, settings: Training, *, rank: int = 0, ranks: int = 1, encoding: Encoding | None = None
) -> Loader:
    batch = Batch(per_rank=settings.batch_size, ranks=ranks, accumulation=settings.gradient_accumulation)
    buckets = make_buckets(data.table, settings, batch)
    order = make_timeline(buckets, settings, effective=batch.effective)
    place = Place(rank=rank, local_rank=rank, world_size=ranks, local_world_size=ranks)
    return Loader(data, buckets, order, training=settings, place=place, encoding=encoding or NeverEncoding(), pin=False)


def numbers(batch: StepBatch) -> list[Numbers]:
    return [
        (int(bits(latents)[0]), int(bits(pooled)[0]), float(sigma))
        for micro in batch.micro_batches
        for latents, pooled, sigma in zip(micro.latents, micro.pooled, micro.sigmas, strict=True)
    ]


def bits(tensor: Any) -> np.ndarray:
    import torch  # noqa: PLC0415

    found: np.ndarray = tensor.flatten().view(torch.int16).numpy()
    return found


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
    with pytest.raises(ConfigurationError, match='"train": of the 12 pictures that are trained at 64 x 64 none'):
        list(map(one.step, range(12)))


def test_evaluation_leaves_out_what_cannot_be_used(tmp_path: Path) -> None:
    data = prepared(tmp_path, ("Train", "Evaluation"))
    settings = training(batchSize=1, **on_the_fly("Train", "Evaluation"))
    one = loader(data, settings, encoding=Making([ROWS, ROWS + 3]))
    judged = [int(bits(sample)[0]) for _, batch in one.evaluation() for sample in batch.latents]
    assert sorted(judged) == [row for row in range(ROWS, 2 * ROWS) if row not in {ROWS, ROWS + 3}]


def take_all(prefetch: Prefetcher) -> None:
    while True:
        prefetch.take()


def test_a_storage_that_answers_no_more_is_the_cause_before_anybody_calls_it_a_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, stuck = prepared(tmp_path), threading.Event()
    ahead = loader(data, training(batchSize=EFFECTIVE))
    began, looks = time.monotonic(), itertools.count()
    # Every look at the clock is twenty seconds later.
    prefetch = Prefetcher(ahead, 0, 20, clock=lambda: began + 20.0 * next(looks))
    prefetch.take()
    monkeypatch.setattr(Places, "read", lambda _places, _index: stuck.wait())
    with pytest.raises(StorageError, match=r"data of step \d do not come: nothing was read for \d+ s"):
        take_all(prefetch)
    stuck.set()
    prefetch.close()


def test_steps_are_handed_out_in_order_and_only_to_the_last(tmp_path: Path) -> None:
    data = prepared(tmp_path)
    settings = training(batchSize=EFFECTIVE)
    expected = [numbers(loader(data, settings).step(step)) for step in range(3, 8)]
    ahead = Prefetcher(loader(data, settings), 3, 8)
    assert [numbers(ahead.take()) for _ in range(5)] == expected
    with pytest.raises(IndexError):
        ahead.take()
    ahead.close()


def test_what_reading_raised_comes_out_where_the_batch_is_taken(tmp_path: Path) -> None:
    data = prepared(tmp_path)
    settings = training(batchSize=EFFECTIVE)
    ahead = loader(data, settings)
    for shard in (tmp_path / "embeds").glob("*.bin"):
        shard.write_bytes(b"\0" * shard.stat().st_size)
    prefetch = Prefetcher(ahead, 0, 4)
    with pytest.raises(StorageError, match="shard-"):
        prefetch.take()
    prefetch.close()
