"""What a user's table says of pictures, whatever its format: names, sizes and captions by the columns that the job names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from oarlock_api.dataset import CaptionStrategy
from oarlock_trainer.data.metadata import keys
from oarlock_trainer.data.metadata.caption_files import text_beside
from oarlock_trainer.data.metadata.captions import Wording, from_name, gathered, one_each
from oarlock_trainer.data.metadata.discovery import in_threads, unreadable
from oarlock_trainer.data.metadata.facts import Bad
from oarlock_trainer.data.metadata.rows import PictureRows
from oarlock_trainer.data.quarantine import UNREADABLE
from oarlock_trainer.data.video_frames import available
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from oarlock_api.dataset import Dataset, Parquet
    from oarlock_trainer.data.metadata.listing import Stems
    from oarlock_trainer.storage.files import Files

_LARGEST = float(1 << 31)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserTable:
    """How the rows of a table are read. `stems` completes names that carry no extension."""

    dataset: Dataset
    settings: Parquet
    files: Files
    wording: Wording
    stems: Stems | None
    threads: int

    @property
    def columns(self) -> list[str]:
        """All columns that are wanted; nothing else of the table is read."""
        name, *captions = self.texts
        return list(dict.fromkeys([name, *self.measures, *captions]))

    @property
    def texts(self) -> list[str]:
        """The columns that hold texts: names, and captions where they stand in the table."""
        settings, wanted = self.settings, [self.settings.filename_column]
        if self.dataset.captions.strategy is CaptionStrategy.PARQUET:
            wanted += settings.caption_columns
            wanted += [settings.fallback_caption_column] if settings.fallback_caption_column else []
        return wanted

    @property
    def measures(self) -> list[str]:
        """The columns that hold numbers: width and height, of videos frames in all and a second."""
        settings = self.settings
        video_columns = [settings.frames_column or "frames", settings.fps_column or "fps"] if self.dataset.video else []
        return [settings.width_column, settings.height_column, *video_columns]

    def identity(self, *place: object) -> str:
        """Tells a piece of the table from others; another listing may complete names in another way."""
        return keys.digest(*place, self.stems.identity if self.stems else "")

    def check(self, there: Sequence[str], *, table: str) -> None:
        """Raise ConfigurationError where columns are missing."""
        if missing := [column for column in self.columns if column not in there]:
            raise ConfigurationError(
                f'dataset "{self.dataset.name}": {table} has no column {_quoted(missing)}; it has {_quoted(there)}. '
                "Name the right ones in metadata.parquet (filenameColumn, widthColumn, heightColumn, captionColumns, "
                "fallbackCaptionColumn; with video framesColumn, fpsColumn)"
            )

    def found(self, rows: pa.Table, *, first: int, table: str, on: Callable[[int], None]) -> PictureRows:
        """The pictures of some rows, of which the first has the number `first` in the table.

        Raises ConfigurationError where a column holds what it cannot.
        """
        try:
            return self._found(rows, first, on)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            kinds = ", ".join(f"{field.name}: {field.type}" for field in rows.schema)
            raise ConfigurationError(
                f'dataset "{self.dataset.name}": {table}: a column is not what metadata.parquet takes it for: {error} '
                f"(columns are {kinds}; names and captions must be text or lists of text, {', '.join(self.measures)} numbers)"
            ) from error

    def _found(self, rows: pa.Table, first: int, on: Callable[[int], None]) -> PictureRows:
        names = pc.fill_null(_text(_column(rows, self.settings.filename_column)), "")
        named = pc.not_equal(names, "")
        numbers = np.flatnonzero(~named.to_numpy(zero_copy_only=False)) + first
        bad = [Bad(f"row {number}", "without name", "no file name in this row of the table") for number in numbers]
        if bad:
            rows, names = rows.filter(named), names.filter(named)
        versions = pa.repeat("", len(names))
        if self.stems:
            given, (names, versions) = names, self.stems.complete(names)
            there = names.is_valid()
            absent = given.filter(pc.invert(there)).to_pylist()
            bad += [Bad(name, "not there", "the source has no file of this name") for name in absent]
            rows, names, versions = rows.filter(there), names.filter(there), versions.filter(there)
        if self.dataset.captions.strategy is CaptionStrategy.TEXT_FILE:
            looks = in_threads(self._look, names.to_pylist(), threads=self.threads, on=on)
            fine = pa.array([not isinstance(look, Bad) for look in looks], pa.bool_())
            bad += [look for look in looks if isinstance(look, Bad)]
            rows, names, versions = rows.filter(fine), names.filter(fine), versions.filter(fine)
            texts = pa.array([look for look in looks if not isinstance(look, Bad)], pa.string())
            captions = one_each(texts, self.wording)
        else:
            captions = self._captions(rows, names)
            on(len(names))
        width, height, *video_numbers = (_numbers(_column(rows, column)) for column in self.measures)
        video = self.dataset.video
        return PictureRows(
            names=names,
            versions=versions,
            width=width.astype(np.int64),
            height=height.astype(np.int64),
            frames=available(video_numbers[0], video_numbers[1], video.fps) if video else None,
            captions=captions,
            bad=tuple(bad),
        )

    def _captions(self, rows: pa.Table, names: pa.Array) -> pa.Array:
        captions = self.dataset.captions
        if captions.strategy is CaptionStrategy.FIXED:
            return one_each(pa.repeat(captions.text or "", len(names)), self.wording)
        if captions.strategy is CaptionStrategy.FILENAME:
            return one_each(pa.array(map(from_name, names.to_pylist()), pa.string()), self.wording)
        cells = [_texts(_column(rows, column)) for column in self.settings.caption_columns]
        fallback = self.settings.fallback_caption_column
        return gathered(cells, _texts(_column(rows, fallback)) if fallback else None, self.wording)

    def _look(self, name: str) -> str | Bad | None:
        try:
            return text_beside(self.files, name)
        except UNREADABLE as error:
            return unreadable(name, error)


def _column(rows: pa.Table, name: str) -> pa.Array:
    column = rows[name]
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _text(column: pa.Array) -> pa.Array:
    return _valid(column if column.type == pa.string() else column.cast(pa.string()))


def _valid(column: pa.Array) -> pa.Array:
    column.validate(full=True)  # who wrote the file may have called any bytes text
    return column


def _texts(column: pa.Array) -> pa.Array:
    """Strings, or lists of strings."""
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        wanted = pa.list_(pa.string())
        return _valid(column if column.type == wanted else column.cast(wanted))
    return _text(column)


def _numbers(column: pa.Array) -> np.ndarray:
    """(n,) float64; 0 where there is none."""
    numbers = pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy()
    return np.asarray(np.nan_to_num(numbers, nan=0.0).clip(0, _LARGEST))


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names) or "none"
