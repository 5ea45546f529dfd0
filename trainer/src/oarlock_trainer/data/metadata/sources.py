"""Where a data set's pictures are found: in its table if the job names one, else by listing its source."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, TypeVar

from oarlock_api.dataset import CaptionStrategy
from oarlock_trainer.data.metadata.captions import Wording
from oarlock_trainer.data.metadata.discovery import Discovered
from oarlock_trainer.data.metadata.listing import Stems, write_listing, write_stems
from oarlock_trainer.data.metadata.pairs import Paired
from oarlock_trainer.data.metadata.table_files import JsonPieces, ParquetPieces
from oarlock_trainer.data.metadata.user_table import UserTable
from oarlock_trainer.runtime import channel
from oarlock_trainer.runtime.background import Background
from oarlock_trainer.runtime.errors import ConfigurationError, NotThereError, readable, storage
from oarlock_trainer.runtime.heartbeat import alive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from oarlock_api.dataset import Dataset, Parquet
    from oarlock_api.location import Location
    from oarlock_trainer.data.metadata.pieces import Pieces
    from oarlock_trainer.data.metadata.recipe import Recipe
    from oarlock_trainer.data.metadata.table import Picture
    from oarlock_trainer.engine.process_group import RankGroup
    from oarlock_trainer.runtime.job import Job
    from oarlock_trainer.storage.files import Files
    from oarlock_trainer.storage.locations import Locations

_THREADS = 16
"""Reading headers waits for the storage; more threads than this only wait for Python."""
Result = TypeVar("Result")


def source_of(dataset: Dataset, locations: Locations) -> Files:
    """The data set's pictures.

    Raises ConfigurationError where a folder is none, or may not be read: an empty data set would say less.
    """
    return _files_at(dataset.source, locations, field=f"{field_of(dataset)}.source")


def pairs_of(dataset: Dataset, locations: Locations) -> Files | None:
    """The pictures' pairs, where the data set has such.

    Raises ConfigurationError where a folder is none, may not be read, or lies within that of the pictures: pairs would be
    taken for pictures.
    """
    if dataset.conditioning is None:
        return None
    field, place = f"{field_of(dataset)}.conditioning.source", dataset.conditioning.source
    pairs = _files_at(place, locations, field=field)
    if _lies_within(place, dataset.source):
        raise ConfigurationError(
            f"{field}: {pairs.where} lies within the data set's source, where each would be taken for one more picture: give "
            "the two folders or prefixes of their own, side by side"
        )
    return pairs


class Sources:
    """The places of data sets' pictures and their pairs, opened once."""

    def __init__(self, datasets: Iterable[Dataset], locations: Locations) -> None:
        """Raises ConfigurationError as `source_of` and `pairs_of`."""
        self._pictures: dict[str, Files] = {}
        self._pairs: dict[str, Files] = {}
        for dataset in datasets:
            self._pictures[dataset.name] = source_of(dataset, locations)
            if pairs := pairs_of(dataset, locations):
                self._pairs[dataset.name] = pairs

    def of(self, picture: Picture) -> Files:
        """Where `picture.file` is read."""
        return (self._pairs if picture.paired else self._pictures)[picture.dataset]


def field_of(dataset: Dataset) -> str:
    """The data set's place in the job."""
    return f'training.data.datasets["{dataset.name}"]'


def folders_of(dataset: Dataset) -> dict[str, str]:
    """Field -> folder of the data set's pictures and their pairs, those of them that are folders."""
    places = {"source": dataset.source}
    if dataset.conditioning:
        places["conditioning.source"] = dataset.conditioning.source
    return {f"{field_of(dataset)}.{field}.path": one.path for field, one in places.items() if one.path is not None}


def _lies_within(inner: Location, outer: Location) -> bool:
    if inner.s3 and outer.s3:
        one, other = (PurePosixPath("/", (at.prefix or "").strip("/")) for at in (inner.s3, outer.s3))
        same = (inner.s3.connection, inner.s3.bucket) == (outer.s3.connection, outer.s3.bucket)
        return same and one.is_relative_to(other)
    return inner.path is not None and outer.path is not None and Path(inner.path).is_relative_to(outer.path)


def _files_at(place: Location, locations: Locations, *, field: str) -> Files:
    if place.path is not None:
        check_folder(Path(place.path), field=f"{field}.path")
    return locations.files_at(place, field)


def check_folder(folder: Path, *, field: str) -> None:
    """Raise ConfigurationError where `field` of the job names no folder, or one that may not be read."""
    with readable(field, folder):
        there = folder.is_dir()
    if not there:
        raise NotThereError.of(f"{field}: {folder} is no folder here", "mount it with pod.volumes, or correct it")


def table_of(dataset: Dataset, settings: Parquet, locations: Locations) -> tuple[Files, str]:
    """The place of the data set's table, and its name there."""
    return locations.file_at(settings.location, f"{field_of(dataset)}.metadata.parquet.location")


def find_pieces(
    job: Job, locations: Locations, ranks: RankGroup, recipe: Recipe, *, folder: Path, go_on: Callable[[], None]
) -> Pieces:
    """The pieces of a data set, the same on all ranks; rank 0 alone lists.

    Raises ConfigurationError where a source or the table cannot be read as the job says.
    """
    pieces = _pictures(job, locations, ranks, recipe, folder=folder, go_on=go_on)
    conditioning, pairs = recipe.dataset.conditioning, pairs_of(recipe.dataset, locations)
    if conditioning is None or pairs is None:
        return pieces
    stems = Stems(folder, _listed(ranks, lambda: write_stems(pairs, folder), go_on))
    return Paired(pieces, stems, kind=conditioning.kind, where=pairs.where)


def _pictures(
    job: Job, locations: Locations, ranks: RankGroup, recipe: Recipe, *, folder: Path, go_on: Callable[[], None]
) -> Pieces:
    dataset = recipe.dataset
    files = source_of(dataset, locations)
    videos = dataset.video is not None
    threads = max((job.training.data.tuning.workers or _THREADS) // job.rank_info.local_world_size, 1)
    settings = dataset.metadata.parquet if dataset.metadata else None
    ranks.all_or_none(lambda: Wording(dataset))
    if settings is None:
        with_captions = dataset.captions.strategy is CaptionStrategy.TEXT_FILE
        pieces = _listed(ranks, lambda: write_listing(files, folder, with_captions=with_captions, videos=videos), go_on)
        return Discovered(dataset, files, folder, pieces, threads=threads)
    stems = None
    if not settings.filename_has_extension:
        stems = Stems(folder, _listed(ranks, lambda: write_stems(files, folder, videos=videos), go_on))
    given = UserTable(
        dataset=dataset, settings=settings, files=files, wording=Wording(dataset), stems=stems, threads=threads
    )
    return ranks.all_or_none(lambda: open_table_file(given, dataset, settings, locations))


def open_table_file(given: UserTable, dataset: Dataset, settings: Parquet, locations: Locations) -> Pieces:
    """A table by its extension."""
    files, name = table_of(dataset, settings, locations)
    entry = files.find(name)
    if entry is None:
        missing = f'dataset "{dataset.name}": metadata.parquet.location: there is no {files.where}/{name}'
        if settings.location.path is None:
            raise ConfigurationError(f"{missing}: correct it")
        raise NotThereError.of(missing, "mount its volume with pod.volumes, or correct it")
    suffix = PurePosixPath(name).suffix.lower()
    if suffix == ".parquet":
        return ParquetPieces(given, files, entry)
    if suffix in {".jsonl", ".ndjson"}:
        return JsonPieces(given, files, entry)
    raise ConfigurationError(
        f'dataset "{dataset.name}": metadata.parquet.location: {name} is neither .parquet nor .jsonl: no other is read'
    )


def _listed(ranks: RankGroup, work: Callable[[], Result], go_on: Callable[[], None]) -> Result:
    """What rank 0 finds by listing, which may take minutes: it is seen to work, and the others to wait.

    Any of them leaves when `go_on` says so, and not only when the listing is there.
    """

    def listed() -> Result:
        listing = Background(work)
        listing.join(alive(go_on))
        with storage("listing a source"):
            return listing.result()

    if ranks.rank_info.is_leader:
        return ranks.decide(listed)
    channel.send(channel.Event.WAITING)
    waiting = Background(lambda: ranks.decide(listed))  # in C, where no signal would be looked at
    waiting.join(go_on)
    return waiting.result()
