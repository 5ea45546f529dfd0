"""Data as preprocessing leaves them, and what a loader deals of them, for tests of who gets what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from oarlock_api.data import Compression
from oarlock_api.training import Training
from oarlock_trainer.data.batch_fit import batch_of
from oarlock_trainer.data.batches import Loader
from oarlock_trainer.data.embedding_index import EmbeddingIndex, resolve
from oarlock_trainer.data.entries import entry_keys
from oarlock_trainer.data.grouping import make_buckets, make_timeline
from oarlock_trainer.data.metadata.table import Table, TableManifest, TablePart, write_part
from oarlock_trainer.data.prepared import Prepared
from oarlock_trainer.data.records import pack
from oarlock_trainer.data.shards import Shard
from oarlock_trainer.runtime.job import RankInfo
from oarlock_trainer.storage.local import LocalFiles

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from oarlock_trainer.data.batches import StepBatch
    from oarlock_trainer.data.metadata.table import Picture
    from oarlock_trainer.data.row_latents import Encoding, Record


SIZES = ((64, 64), (96, 48))


ROWS = 23


EFFECTIVE = 8


MIRRORED = 1000
"""What latents of a mirrored picture hold more than those of the picture."""


MASK = 2000
"""What the mask of a picture holds more than its latents."""


Numbers = tuple[int, int, float]
"""A picture, its caption, and the noise level that was drawn."""


class NeverEncoding:
    """For datasets that are all encoded beforehand."""

    def encode(self, pictures: Sequence[Picture]) -> Sequence[Record]:
        raise AssertionError(f"{len(pictures)} pictures have latents in the cache")

    def close(self) -> None:
        """Nothing to publish."""


class Making:
    """Makes the latents and masks of rows that are not `broken`, as the cache would hold them."""

    def __init__(self, broken: Sequence[int], *, masks: Sequence[int] = ()) -> None:
        self.broken = [*(f"{number}.png" for number in broken), *(f"mask-{number}.png" for number in masks)]
        self.asked: list[str] = []

    def encode(self, pictures: Sequence[Picture]) -> Sequence[Record | None]:
        self.asked += [picture.file for picture in pictures]
        return [None if picture.file in self.broken else self._record(picture) for picture in pictures]

    def close(self) -> None:
        """Nothing to publish."""

    def _record(self, picture: Picture) -> Record:
        shape = (1 if picture.paired else 4, picture.target_height // 8, picture.target_width // 8)
        number = int(picture.name.removesuffix(".png")) + MIRRORED * picture.mirrored + MASK * picture.paired
        return np.full(shape, number, dtype=np.uint16).reshape(-1), shape


def training(**fields: Any) -> Training:
    body: dict[str, Any] = {
        "model": {"family": "Flux1", "path": "/models/flux"},
        "steps": 50,
        "data": {"datasets": [{"name": "photos", "source": {"path": "/data"}}]},
        "objective": {"captionDropout": 0.25},
    }
    return Training.model_validate(body | fields)


def prepared(
    folder: Path,
    datasets: Sequence[str] = ("photos",),
    captions: int = 1,
    *,
    mirrored: bool = False,
    masked: bool = False,
    frames: Sequence[int] = (),
) -> Prepared:
    """Rows of both sizes, whose latents hold the row's number and whose texts hold the caption's.

    With `mirrored` the latents of mirrored pictures are stored, too; with `masked` masks, both ways. `frames` are those of
    each data set's samples, of which a latent takes four.
    """
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
        many = frames[place] if frames else 1
        if many > 1:
            columns["frames"] = [many] * ROWS
        if masked:
            columns["pair"] = [f"mask-{number}.png" for number in numbers]
            columns["pair_key"] = [(2**40 + number).to_bytes(16, "little") for number in numbers]
        write_part(folder, f"{place}.arrow", columns)
        parts.append(TablePart(file=f"{place}.arrow", dataset=place, rows=ROWS))
        for number, (width, height) in zip(numbers, sizes, strict=True):
            values = np.full((4 * ((many - 1) // 4 + 1), height // 8, width // 8), number, dtype=np.uint16)
            latents.append(pack(number.to_bytes(16, "little"), values, values.shape, Compression.NONE))
        for word in (word for some in words for word in some):
            texts.append(text(word))
    texts.append(text(2**31))
    manifest = TableManifest(fingerprint="f", job_uid="u", datasets=tuple(datasets), parts=tuple(parts))
    table = Table(folder, manifest)
    keys = entry_keys(table, len(table) * (4 if masked else 1 + mirrored))
    for entry, key in enumerate(keys[len(table) :], start=len(table)):
        quarter, row = divmod(entry, len(table))
        width, height = SIZES[row % 2]
        number = row + MIRRORED * (quarter % 2) + MASK * (quarter // 2)
        values = np.full((1 if quarter >= 2 else 4, height // 8, width // 8), number, dtype=np.uint16)
        latents.append(pack(key.tobytes(), values, values.shape, Compression.NONE))
    latents.publish(store)
    texts.publish(LocalFiles(folder / "texts", field="data"))
    empty = np.frombuffer((2**31).to_bytes(16, "big"), dtype="<u8").reshape(1, 2)
    places = folder / "places"
    text_store = LocalFiles(folder / "texts", field="data")
    found = resolve(places, "latents", asked="l", keys=lambda: keys, stores=[store])
    said = resolve(
        places, "texts", asked="t", keys=lambda: np.concatenate([table.text_keys(), empty]), stores=[text_store]
    )
    return Prepared(
        table=table,
        buckets=[],  # made by each test, for its own batch
        latents=EmbeddingIndex(found, [store]),
        texts=EmbeddingIndex(said, [text_store]),
        empty_text=len(table.text_keys()),
        fingerprint="f",
    )


def text(word: int) -> Any:
    # A CLIP vector of two values and a T5 sequence of one token and width three.
    values = np.full(5, word % 2**15, dtype=np.uint16)
    return pack(word.to_bytes(16, "big"), values, (1, 3, 2), Compression.NONE)


class Speaking:
    """Encodes a caption, which is a number, to what `prepared` has stored for it."""

    def encode(self, captions: Sequence[str]) -> list[Any]:
        import torch  # noqa: PLC0415

        made = []
        for caption in captions:
            word = int(caption) if caption else 2**31
            values = torch.full((5,), word % 2**15, dtype=torch.int16).view(torch.bfloat16)
            made.append((values[:2], values[2:].reshape(1, 3)))
        return made


def loader(
    data: Prepared, settings: Training, *, rank: int = 0, ranks: int = 1, encoding: Encoding | None = None
) -> Loader:
    batch = batch_of(settings, ranks=ranks, ranks_per_node=ranks)
    buckets = make_buckets(data.table, settings, batch)
    order = make_timeline(buckets, settings, effective=batch.effective)
    rank_info = RankInfo(rank=rank, local_rank=rank, world_size=ranks, local_world_size=ranks)
    return Loader(
        data, buckets, order, training=settings, rank_info=rank_info, encoding=encoding or NeverEncoding(), pin=False,
        text=Speaking() if data.texts is None else None,
    )  # fmt: skip


def numbers(batch: StepBatch) -> list[Numbers]:
    """Of the samples that count."""
    return [
        (int(bits(latents)[0]), int(bits(pooled)[0]), float(sigma))
        for micro, weight in zip(batch.micro_batches, batch.weights, strict=True)
        if weight
        for latents, pooled, sigma in zip(micro.latents, micro.pooled, micro.sigmas, strict=True)
    ]


def bits(tensor: Any) -> np.ndarray:
    import torch  # noqa: PLC0415

    found: np.ndarray = tensor.flatten().view(torch.int16).numpy()
    return found
