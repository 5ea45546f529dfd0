"""Where the sizes and captions of one data set come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oarlock_import.options import Options
from oarlock_import.rows import table
from oarlock_import.tables.dataset import PARQUET

if TYPE_CHECKING:
    from oarlock_import.draft import Draft
    from oarlock_import.places import Places

_DISCOVERY = ("discovery", "json")
_ROWS = table(*PARQUET)


def place(dataset: Options, options: Options, draft: Draft, *, places: Places, videos: bool) -> None:
    """Write metadata.discovery or metadata.parquet, of pictures or `videos`."""
    backend = str(dataset.value("metadata_backend")).lower()
    if backend in _DISCOVERY:
        draft.put("metadata.discovery", {})
        dataset.mapped("metadata_backend", words="-> metadata.discovery")
        dataset.ignored("parquet", "metadata_backend is not parquet")
    elif backend == "parquet":
        dataset.mapped("metadata_backend", words="-> metadata.parquet")
        _parquet(dataset, options, draft, places, videos=videos)
    else:
        dataset.refused("metadata_backend", f"{backend} is not here: use discovery or parquet")


def _parquet(dataset: Options, options: Options, draft: Draft, places: Places, *, videos: bool) -> None:
    given = dataset.value("parquet")
    if not isinstance(given, dict) or not given.get("path"):
        dataset.refused("parquet", "has to name the table: parquet: {path: ...}")
        return
    dataset.mapped("parquet", words="see its keys")
    block = Options(f"{dataset.source}[parquet]", given, rows=_ROWS, report=dataset.report)
    path = str(given["path"])
    # SimpleTuner reads the table through the entry's own store: a key of the bucket, or a file.
    location = places.bucket(dataset, path) if dataset.value("type") == "aws" else {"path": places.path(path)}
    draft.put("metadata.parquet.location", location)
    block.mapped("path", words="-> metadata.parquet.location")
    named = options.value("parquet_filename_column") if "filename_column" not in block else None
    block.carry(draft, "filename_column", value=named)
    columns = block.value("caption_column")
    if "caption_column" not in block and options.value("parquet_caption_column"):
        columns = options.value("parquet_caption_column")
    block.carry(draft, "caption_column", value=columns if isinstance(columns, list) else [columns])
    for key in ("width_column", "height_column", *(("num_frames_column", "fps_column") if videos else ())):
        if key not in block:
            block.refused(key, "is missing: the table has to hold the sizes, or use metadata_backend discovery")
    block.settle(draft)
