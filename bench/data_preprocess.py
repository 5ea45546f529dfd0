"""The whole line of preprocessing beside each of its stages alone, in one run and with the same numbers of threads.

Pictures are photographs of 1024 pixels as JPEG, trained at 512. Three encoders, and captions:

    tiny VAE        computes on the cores that also decode: what all stages need together is the limit
    slow encoder    sleeps as long as a GPU would compute, 25 ms a picture: where decoding is faster, encoding is the limit
    fast encoder    sleeps too, 2.5 ms a picture: decoding is the limit

A sleeping encoder takes no processor, as a GPU takes none. How fast a real one is, is not measured here.
"""

from __future__ import annotations

import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oarlock_trainer.ranks import preload

preload.settle_environment()

import torch  # noqa: E402
from data_discovery import jpegs  # noqa: E402
from data_report import Figures, report, watched  # noqa: E402

from oarlock_api.data import Compression  # noqa: E402
from oarlock_api.weights import ModelFlavor  # noqa: E402
from oarlock_trainer.data.buckets import Cut, Size  # noqa: E402
from oarlock_trainer.data.metadata.table import Picture  # noqa: E402
from oarlock_trainer.data.progress import Progress  # noqa: E402
from oarlock_trainer.data.records import pack  # noqa: E402
from oarlock_trainer.data.shards import Shard  # noqa: E402
from oarlock_trainer.models.encoders import PictureEncoder  # noqa: E402
from oarlock_trainer.models.flux import tiny  # noqa: E402
from oarlock_trainer.models.flux.captions import CaptionEncoder  # noqa: E402
from oarlock_trainer.models.flux.code import CODE  # noqa: E402
from oarlock_trainer.models.flux.family import FLUX1  # noqa: E402
from oarlock_trainer.plan.encoding import VAE_BATCH  # noqa: E402
from oarlock_trainer.preprocess.latents import Task, bits, encode, encode_pictures  # noqa: E402
from oarlock_trainer.preprocess.pictures import decode  # noqa: E402
from oarlock_trainer.preprocess.shares import TEXT_BATCH  # noqa: E402
from oarlock_trainer.preprocess.storing import Storing  # noqa: E402
from oarlock_trainer.preprocess.text import encode_captions  # noqa: E402
from oarlock_trainer.storage.local import LocalFiles  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy as np

_SIDE, _TARGET = 1024, 512
_DIFFERENT = 24
_UNIT = 64
_CAPTIONS = 32
"""Captions for each picture: the tiny T5 takes no time for them."""
_READERS = 8
"""Threads that read, as in preprocess.latents."""
_THREADS = len(os.sched_getaffinity(0))
_CUT = Cut(Size(_TARGET, _TARGET), 0, 0, Size(_TARGET, _TARGET))


class SleepingEncoder(PictureEncoder):
    """Takes its time and no processor; the latents are normal noise, the same for every picture."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._latent = torch.randn((16, _TARGET // 8, _TARGET // 8)).to(torch.bfloat16)

    def encode(self, pictures: np.ndarray, seeds: Sequence[int]) -> torch.Tensor:
        """Latents of a batch."""
        del seeds
        time.sleep(self._seconds * len(pictures))
        return self._latent.expand(len(pictures), -1, -1, -1)


def measure(folder: Path, *, count: int, rounds: int) -> None:
    """Stages alone and the whole line, `rounds` times."""
    torch.set_num_threads(1)
    if not (folder / "model").exists():
        tiny.write(folder / "model")
        names = [f"{number}.jpg" for number in range(_DIFFERENT)]
        for name, body in zip(names, jpegs(_DIFFERENT, side=_SIDE, aspects=(1.0,)), strict=True):
            LocalFiles(folder / "pictures", field="bench").write(name, body)
    vae = PictureEncoder(folder / "model", FLUX1, torch.device("cpu"), code=CODE)
    measured: dict[str, list[Figures]] = {}
    for _ in range(rounds):
        line = _Pictures(folder, count)
        for name, encoder in {
            "tiny VAE": vae,
            "slow encoder": SleepingEncoder(0.025),
            "fast encoder": SleepingEncoder(0.0025),
        }.items():
            figures = _compared(partial(line.alone, encoder), partial(line.whole, encoder))
            measured.setdefault(name, []).append(figures)
        captions = _Captions(folder, count * _CAPTIONS)
        measured.setdefault("captions", []).append(_compared(captions.alone, captions.whole))
    report("preprocess", measured)


def _compared(alone: Callable[[], dict[str, float]], whole: Callable[[], float]) -> Figures:
    figures: Figures = {}
    with watched(figures):
        rates = alone()
        together = whole()
    figures |= {f"{name} alone, /s": rate for name, rate in rates.items()}
    figures["whole line, /s"] = together
    figures["of the slowest stage"] = together / min(rates.values())
    return figures


class _Pictures:
    """Pictures -> latents."""

    def __init__(self, folder: Path, count: int) -> None:
        self._source = LocalFiles(folder / "pictures", field="bench")
        self._out = _emptied(folder / "out")
        pictures = [_picture(number) for number in range(count)]
        self._tasks = [
            Task(row=row, picture=picture, source=self._source, cut=_CUT, unit=row // _UNIT, store=self._out)
            for row, picture in enumerate(pictures)
        ]

    def alone(self, encoder: PictureEncoder) -> dict[str, float]:
        """Pictures a second of each stage that has the machine for itself."""
        names = [task.picture.name for task in self._tasks]
        bodies = {name: self._source.read(name) for name in set(names)}
        pixels = {name: decode(body, _CUT) for name, body in bodies.items()}
        batches = [self._tasks[start : start + VAE_BATCH] for start in range(0, len(names), VAE_BATCH)]

        def encode_batch(tasks: Sequence[Task]) -> torch.Tensor:
            return encode([task.picture for task in tasks], [pixels[task.picture.name] for task in tasks], encoder)

        latents = bits(encode_batch(batches[0])[0])
        return {
            "read": _rate(self._source.read, names, threads=_READERS),
            "decode": _rate(lambda name: decode(bodies[name], _CUT), names, threads=_THREADS),
            "encode": _rate(encode_batch, batches, threads=1) * VAE_BATCH,
            **_storing_alone([task.picture.image_key for task in self._tasks], latents, self._out),
        }

    def whole(self, encoder: PictureEncoder) -> float:
        """Pictures a second of the whole line."""
        began = time.perf_counter()
        rejected = encode_pictures(
            iter(self._tasks), encoder, _storing(), batch_size=VAE_BATCH, threads=_THREADS,
            progress=_progress(len(self._tasks)), go_on=_nothing,
        )  # fmt: skip
        if rejected:
            raise RuntimeError(f"{len(rejected)} pictures were rejected")
        return len(self._tasks) / (time.perf_counter() - began)


class _Captions:
    """Captions -> embeddings."""

    def __init__(self, folder: Path, count: int) -> None:
        self._encoder = CaptionEncoder(folder / "model", ModelFlavor.DEV, torch.device("cpu"))
        self._out = _emptied(folder / "out")
        self._tasks = [
            (number // (_UNIT * _CAPTIONS), _key(number), f"a photograph of a cat on a wooden table, number {number}")
            for number in range(count)
        ]

    def alone(self) -> dict[str, float]:
        """Captions a second of each stage that has the machine for itself."""
        captions = [caption for _, _, caption in self._tasks]
        batches = [captions[start : start + TEXT_BATCH] for start in range(0, len(captions), TEXT_BATCH)]
        sequence, pooled, _ = self._encoder.encode(captions[:1])
        values = bits(torch.cat([pooled[0], sequence[0].reshape(-1)]))
        return {
            "encode": _rate(self._encoder.encode, batches, threads=1) * TEXT_BATCH,
            **_storing_alone([key for _, key, _ in self._tasks], values, self._out, unit=_UNIT * _CAPTIONS),
        }

    def whole(self) -> float:
        """Captions a second of the whole line."""
        began = time.perf_counter()
        encode_captions(
            iter(self._tasks), self._encoder, _storing(), store=self._out, batch_size=TEXT_BATCH, unpadded=False,
            progress=_progress(len(self._tasks)), go_on=_nothing,
        )  # fmt: skip
        return len(self._tasks) / (time.perf_counter() - began)


def _storing_alone(
    keys: Sequence[bytes], values: np.ndarray, out: LocalFiles, *, unit: int = _UNIT
) -> dict[str, float]:
    """Records a second of packing and of publishing."""
    shards = []
    for start in range(0, len(keys), unit):
        shard = Shard()
        for key in keys[start : start + unit]:
            shard.append(pack(key, values, (1, 1, values.size), Compression.NONE))
        shards.append(shard)
    return {
        "pack": _rate(lambda key: pack(key, values, (1, 1, values.size), Compression.NONE), keys, threads=_THREADS),
        "publish": _rate(lambda shard: shard.publish(out), shards, threads=1) * len(keys) / len(shards),
    }


def _rate(work: Callable[[Any], object], items: Iterable[Any], *, threads: int) -> float:
    """Items a second."""
    wanted = list(items)
    with ThreadPoolExecutor(threads) as pool:
        began = time.perf_counter()
        for future in [pool.submit(work, item) for item in wanted]:
            future.result()
        return len(wanted) / (time.perf_counter() - began)


def _picture(number: int) -> Picture:
    return Picture(
        dataset="bench", name=f"{number % _DIFFERENT}.jpg", width=_SIDE, height=_SIDE, target_width=_TARGET,
        target_height=_TARGET, captions=("",), image_key=_key(number), text_keys=(_key(number),),
    )  # fmt: skip


def _key(number: int) -> bytes:
    return number.to_bytes(16, "little")


def _emptied(folder: Path) -> LocalFiles:
    shutil.rmtree(folder, ignore_errors=True)
    return LocalFiles(folder, field="bench")


def _storing() -> Storing:
    return Storing(Compression.NONE, threads=_THREADS, go_on=_nothing)


def _progress(count: int) -> Progress:
    return Progress("bench", own=count, total=count, speaks=False)


def _nothing() -> None:
    """Nobody asks a benchmark to leave."""
