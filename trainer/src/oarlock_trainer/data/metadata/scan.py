"""From the data sets' sources to the parts of the table: all ranks together, each its share, every part once.

Rank 0 lists a source once and cuts it into pieces; a rank makes the parts of its pieces, and the manifest puts them in the
order of the pieces. So the table is the same for any number of ranks, and a scan that was killed goes on where it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from oarlock_api.contract.layout import PRIVATE
from oarlock_trainer.data import quarantine
from oarlock_trainer.data.metadata.build_parts import BuiltPart, bin_of, binned, limited, lots_of, make_parts, within
from oarlock_trainer.data.metadata.facts import counts_of, rejected_in, total
from oarlock_trainer.data.metadata.listing import remove_listing
from oarlock_trainer.data.metadata.recipe import Recipe, cuts
from oarlock_trainer.data.metadata.reuse import DatasetParts, by_dataset, hand_on, reusable_parts, reuse_scan
from oarlock_trainer.data.metadata.sources import find_pieces, pairs_of, source_of
from oarlock_trainer.data.metadata.table import TableManifest, TablePart
from oarlock_trainer.data.progress import Progress
from oarlock_trainer.engine.process_group import PREPROCESS_TIMEOUT, START_TIMEOUT
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from oarlock_api.dataset import Dataset
    from oarlock_api.training import Training
    from oarlock_trainer.data.buckets import Cut, Size
    from oarlock_trainer.data.cache_keys import Encoders
    from oarlock_trainer.data.metadata.facts import Counts
    from oarlock_trainer.data.quarantine import Rejected
    from oarlock_trainer.engine.process_group import RankGroup
    from oarlock_trainer.runtime.job import Job
    from oarlock_trainer.storage.files import Files
    from oarlock_trainer.storage.locations import Locations


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanned:
    """The parts that make the table once it is published, and the pictures that cannot be used."""

    manifest: TableManifest
    rejected: tuple[Rejected, ...]


def scan(
    job: Job,
    locations: Locations,
    ranks: RankGroup,
    encoders: Encoders,
    *,
    fingerprint: str,
    go_on: Callable[[], None],
    caches: Callable[[Dataset], Files] | None = None,
) -> Scanned:
    """Make the parts of all data sets below the job's output; all ranks return the same. `go_on` may raise to stop.

    What another job has handed on beside its `caches` is taken over for data sets with preserveScan.
    Raises ConfigurationError where a data set is empty, may not be read, or has too many bad pictures.
    """
    ranks.bound_waiting(PREPROCESS_TIMEOUT)
    folder = table_folder(job.output)
    recipes = ranks.all_or_none(lambda: _recipes(job, locations, encoders))
    kept = ranks.decide(lambda: _kept(folder, recipes, caches))
    parts: list[TablePart] = []
    left_out: list[int] = []
    for number, recipe in enumerate(recipes):
        if number in kept:
            own = kept[number].parts(number)
            left_out += [sum(part.rows for part in parts) + row for row in kept[number].left_out]
        else:
            made = _make(job, locations, ranks, recipe, go_on)
            own = tuple(TablePart(file=one.file, dataset=number, rows=one.rows) for one in made)
        parts += own
    names = tuple(recipe.dataset.name for recipe in recipes)
    manifest = TableManifest(
        fingerprint=fingerprint, job_uid=job.file.job_uid, datasets=names, parts=tuple(parts), left_out=tuple(left_out)
    )
    rejected = ranks.decide(lambda: _judged(job, manifest, recipes))
    if ranks.rank_info.is_leader:
        remove_listing(folder)
    ranks.bound_waiting(START_TIMEOUT)
    return Scanned(manifest=manifest, rejected=rejected)


def table_folder(output: Path) -> Path:
    """Where the table of a job lies."""
    return output / PRIVATE / "data"


def picture_cut(training: Training, dataset: Dataset, name: str, size: Size) -> Cut:
    """Scale and crop of one picture, as the scan took it to be."""
    sides = (np.array([size.width]), np.array([size.height]))
    return cuts(training, dataset, pa.array([name]), sides).one(0)


def hand_on_scans(
    job: Job, locations: Locations, encoders: Encoders, manifest: TableManifest, caches: Callable[[Dataset], Files]
) -> None:
    """Lay each data set's part of the table beside its caches. Rank 0 only."""
    folder = table_folder(job.output)
    of_datasets = by_dataset(manifest)
    for number, recipe in enumerate(_recipes(job, locations, encoders)):
        hand_on(caches(recipe.dataset), recipe.fingerprint(), folder, of_datasets[number])


def _kept(
    folder: Path, recipes: Sequence[Recipe], caches: Callable[[Dataset], Files] | None
) -> dict[int, DatasetParts]:
    """What needs no scan: of this job's own table, or else of what lies beside the caches."""
    kept = reusable_parts(folder, recipes)
    for number, recipe in enumerate(recipes):
        if caches and recipe.dataset.preserve_scan and number not in kept:
            found = reuse_scan(caches(recipe.dataset), recipe.fingerprint(), folder)
            kept |= {number: found} if found else {}
    return kept


def _recipes(job: Job, locations: Locations, encoders: Encoders) -> list[Recipe]:
    found = []
    for dataset in job.training.data.datasets:
        pairs, source = pairs_of(dataset, locations), source_of(dataset, locations).where
        own = Recipe(
            training=job.training, dataset=dataset, source=source, encoders=encoders, pairs=pairs.where if pairs else ""
        )
        found.append(own)
    return found


def _make(
    job: Job, locations: Locations, ranks: RankGroup, recipe: Recipe, go_on: Callable[[], None]
) -> list[BuiltPart]:
    """Make a data set's parts; all ranks return all of them, in order."""
    folder, rank_info = table_folder(job.output), ranks.rank_info
    pieces = find_pieces(job, locations, ranks, recipe, folder=folder, go_on=go_on)
    own = range(rank_info.rank, len(pieces.groups), rank_info.world_size)
    mine = sum(pieces.pieces[number].pictures for group in own for number in pieces.groups[group])
    everything = sum(piece.pictures for piece in pieces.pieces)
    progress = Progress(f"scanning {recipe.dataset.name}", own=mine, total=everything, speaks=rank_info.is_leader)

    left = mine

    def on(pictures: int) -> None:
        nonlocal left
        go_on()
        # How many pictures a piece has is a guess where nobody has counted the lines of a file.
        progress.advance(min(pictures, left))
        left -= min(pictures, left)

    made = ranks.shares(partial(make_parts, pieces, own, recipe, folder, on=on), go_on)
    maximum = recipe.dataset.max_samples
    if maximum is not None and sum(one.rows for some in made for one in some) > maximum:
        made = ranks.gather(_limit(ranks, made[rank_info.rank], folder, maximum, recipe.training.seed))
    return sorted(one for some in made for one in some)


def _limit(ranks: RankGroup, made: Sequence[BuiltPart], folder: Path, maximum: int, seed: int) -> list[BuiltPart]:
    lots = [lots_of(folder, one, seed) for one in made]
    bins = np.array(ranks.sum(binned(lots).tolist())).astype(np.int64)
    number, place = bin_of(bins, maximum)
    highest = int(np.sort(np.concatenate(ranks.gather(within(lots, number))))[place - 1])
    return ranks.all_or_none(
        lambda: [limited(folder, one, some, highest) for one, some in zip(made, lots, strict=True)]
    )


def _nothing_left(counts: Counts, recipe: Recipe) -> str:
    dataset = recipe.dataset
    what, limits = ("video", "size and video.minFrames") if dataset.video else ("picture", "size")
    if not counts.found and dataset.metadata and dataset.metadata.parquet:
        return f"its table has no row: correct metadata.parquet.location, or name a {what} in it"
    if not counts.found:
        return f"there is no {what} below {recipe.source}: correct its source"
    left = ", ".join(f"{count} by {field}" for field, count in counts.left_out.items() if count)
    if not left:
        return f"none of {counts.found} {what}s below {recipe.source} can be used: mend them, or correct the source"
    return (
        f"no {what} is left of {counts.found} below {recipe.source} ({left} left out): correct its source, or loosen the "
        f"limits of {limits}"
    )


def _judged(job: Job, manifest: TableManifest, recipes: Sequence[Recipe]) -> tuple[Rejected, ...]:
    """Rank 0: tell of pictures that cannot be used.

    Raises ConfigurationError where there are too many of them, or no others.
    """
    folder = table_folder(job.output)
    counts = counts_of(folder, manifest)
    bad = total(one.bad for one in counts)
    rejected = rejected_in(folder, manifest, most=quarantine.MOST)
    quarantine.report(job.output, rejected, pictures=sum(one.found for one in counts), counts=bad)
    for one, recipe in zip(counts, recipes, strict=True):
        if not one.rows:
            raise ConfigurationError(f'dataset "{one.dataset}": {_nothing_left(one, recipe)}')
    return rejected
