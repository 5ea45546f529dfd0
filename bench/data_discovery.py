"""Discovery of many small pictures with captions, beside one thread that decodes them one after the other.

The pictures are photographs of 512 pixels as JPEG, each a file of its own, in folders of a thousand. Discovery is all of
it: listing, headers, captions, parts of the table, by two ranks with all their threads. The loop is given the names, and a
part of the pictures is enough for its speed. All files were just written or read: no disk is waited for.
"""

from __future__ import annotations

import io
import multiprocessing
import shutil
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import data_node
from data_report import Figures, report, watched
from PIL import Image

from oarlock_trainer.data import photographs
from oarlock_trainer.data.cache_keys import fingerprints
from oarlock_trainer.data.metadata.scan import scan
from oarlock_trainer.models.families import family_of
from oarlock_trainer.storage.locations import Locations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from oarlock_trainer.engine.process_group import RankGroup
    from oarlock_trainer.runtime.job import Job

_SIDE = 512
_DIFFERENT = 42
_FOLDER = 1000
_DECODED = 4000


def measure(folder: Path, *, count: int, rounds: int) -> None:
    """Both in turns, `rounds` times."""
    pictures = folder / f"pictures-{count}"
    if not pictures.exists():
        write_pictures(pictures, count)
    dataset = {"name": "pictures", "source": {"path": str(pictures)}}
    training = {"model": {"family": "Flux1", "path": "/model"}, "steps": 1, "data": {"datasets": [dataset]}}
    output = folder / "output"
    measured: list[Figures] = []
    for _ in range(rounds):
        shutil.rmtree(output, ignore_errors=True)
        figures: Figures = {}
        with watched(figures):
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
                decoded = pool.submit(decode_all, pictures, count // _DECODED or 1).result()
            run = data_node.run("data_discovery:discover", training, output)
        seconds = run.marks["scanned"] - run.marks["joined"]
        figures["discovery, s"] = seconds
        figures["discovery, pictures/s"] = count / seconds
        figures["decoding loop, pictures/s"] = decoded
        figures["ratio"] = count / seconds / decoded
        figures["peak of the node, MiB"] = run.peak_mib
        figures["of it imported, MiB"] = run.imported_mib
        measured.append(figures)
    shutil.rmtree(output, ignore_errors=True)
    report("discovery", {f"{count:,} pictures": measured})


def discover(job: Job, ranks: RankGroup, mark: Callable[[str], None]) -> None:
    """The work of one rank."""
    encoders = fingerprints(Path(job.training.model.path or ""), family_of(job.training.model))
    scanned = scan(job, Locations(), ranks, encoders, fingerprint="bench", go_on=_nothing)
    mark("scanned")
    if scanned.rejected:
        raise RuntimeError(f"{len(scanned.rejected)} pictures were rejected")


def decode_all(pictures: Path, every: int) -> float:
    """Pictures a second of one thread that decodes each n-th picture and reads its caption."""
    names = sorted(pictures.rglob("*.jpg"))[::every]
    began = time.perf_counter()
    for name in names:
        with Image.open(name) as picture:
            picture.convert("RGB")
        name.with_suffix(".txt").read_text()
    return len(names) / (time.perf_counter() - began)


def write_pictures(folder: Path, count: int) -> None:
    """Pictures with captions, below a folder that is there once all of them are."""
    unfinished = folder.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    bodies = list(jpegs(_DIFFERENT, side=_SIDE))
    for number in range(count):
        path = unfinished / f"{number // _FOLDER:05d}" / f"{number:08d}.jpg"
        if number % _FOLDER == 0:
            path.parent.mkdir(parents=True)
        path.write_bytes(bodies[number % len(bodies)])
        path.with_suffix(".txt").write_text(f"a photograph, number {number}\n")
    unfinished.rename(folder)


def jpegs(count: int, *, side: int, aspects: Sequence[float] = photographs.ASPECTS) -> Iterator[bytes]:
    """Photographs as JPEG, the shorter side of `side` pixels."""
    with tempfile.TemporaryDirectory() as folder:
        for name in photographs.write(Path(folder), count=count, shorter_side=side, aspects=aspects):
            body = io.BytesIO()
            with Image.open(Path(folder) / name) as picture:
                picture.save(body, "JPEG", quality=90)
            yield body.getvalue()


def _nothing() -> None:
    """Nobody asks a benchmark to leave."""
