"""Where a data set's pictures lie, and its table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from oarlock_trainer.runtime.errors import NotThereError, readable

if TYPE_CHECKING:
    from oarlock_api.dataset import Dataset, Parquet
    from oarlock_trainer.storage.files import Files
    from oarlock_trainer.storage.locations import Locations


def source_of(dataset: Dataset, locations: Locations) -> Files:
    """The data set's pictures.

    Raises ConfigurationError where a folder is none, or may not be read: an empty data set would say less.
    """
    field = field_of(dataset)
    if dataset.source.path is not None:
        check_folder(Path(dataset.source.path), field=f"{field}.path")
    return locations.files_at(dataset.source, field)


def field_of(dataset: Dataset) -> str:
    """The job's field that says where the data set's pictures lie."""
    return f'training.data.datasets["{dataset.name}"].source'


def check_folder(folder: Path, *, field: str) -> None:
    """Raise ConfigurationError where `field` of the job names no folder, or one that may not be read."""
    with readable(field, folder):
        there = folder.is_dir()
    if not there:
        raise NotThereError.of(f"{field}: {folder} is no folder here", "mount it with pod.volumes, or correct it")


def table_of(dataset: Dataset, settings: Parquet, locations: Locations) -> tuple[Files, str]:
    """The place of the data set's table, and its name there."""
    return locations.file_at(settings.location, f'training.data.datasets["{dataset.name}"].metadata.parquet.location')
