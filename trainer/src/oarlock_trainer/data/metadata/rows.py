"""From pictures that were found to rows of the table: sizes checked, cut, keyed; what is no row is counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from oarlock_trainer.data import buckets
from oarlock_trainer.data.metadata import keys
from oarlock_trainer.data.metadata.facts import LISTED, Bad, Facts, total
from oarlock_trainer.data.metadata.recipe import cuts
from oarlock_trainer.data.video_frames import bucket_frames
from oarlock_trainer.models.families import masks_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from oarlock_trainer.data.metadata.recipe import Recipe

_LARGEST = 1 << 24
"""Pixels of a side that no picture has: a table that says more is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureRows:
    """Pictures of one piece of a data set, in its order, and those of it that could not be read.

    names, versions (n,) strings; width, height (n,) int64, 0 where no size is known; captions (n,) lists of strings; names
    and versions of their pairs, both (n,) strings, where the data set has such. `frames` (n,) int64 where it holds videos: of
    the longest sample of each, 0 where that is not known.
    """

    names: pa.Array
    versions: pa.Array
    width: np.ndarray
    height: np.ndarray
    captions: pa.Array
    pairs: tuple[pa.Array, pa.Array] | None = None
    frames: np.ndarray | None = None
    bad: tuple[Bad, ...] = ()

    def taken(self, kept: np.ndarray) -> PictureRows:
        """Those pictures alone for which `kept` (n,) is true."""
        if kept.all():
            return self
        mask = pa.array(kept)
        return PictureRows(
            names=self.names.filter(mask),
            versions=self.versions.filter(mask),
            width=self.width[kept],
            height=self.height[kept],
            captions=self.captions.filter(mask),
            pairs=self.pairs and (self.pairs[0].filter(mask), self.pairs[1].filter(mask)),
            frames=None if self.frames is None else self.frames[kept],
        )


def make_rows(found: PictureRows, recipe: Recipe) -> tuple[dict[str, Any], Facts]:
    """Columns of a part, and what became of all pictures."""
    sides = np.minimum(found.width, found.height), np.maximum(found.width, found.height)
    without_size = (sides[0] <= 0) | (sides[1] > _LARGEST)
    without_length = ~without_size & (found.frames <= 0 if found.frames is not None else False)
    without_caption = ~(without_size | without_length) & (np.diff(found.captions.offsets.to_numpy()) == 0)
    unusable = {"without size": without_size, "without length": without_length, "without caption": without_caption}
    bad = {kind: int(which.sum()) for kind, which in unusable.items()}
    fine = found.taken(~(without_size | without_length | without_caption))
    limits, left_out = recipe.dataset.size, {}
    if (video := recipe.dataset.video) and fine.frames is not None:
        short = fine.frames < video.min_frames
        left_out["video.minFrames"] = int(short.sum())
        fine = fine.taken(~short)
    if limits.minimum is not None:
        small = buckets.is_below(fine.width, fine.height, minimum=limits.minimum, kind=recipe.kind)
        left_out["size.minimum"] = int(small.sum())
        fine = fine.taken(~small)
    if limits.minimum_aspect is not None:
        narrow = fine.width < limits.minimum_aspect * fine.height
        left_out["size.minimumAspect"] = int(narrow.sum())
        fine = fine.taken(~narrow)
    if limits.maximum_aspect is not None:
        wide = fine.width > limits.maximum_aspect * fine.height
        left_out["size.maximumAspect"] = int(wide.sum())
        fine = fine.taken(~wide)
    cut = cuts(recipe.training, recipe.dataset, fine.names, (fine.width, fine.height))
    if limits.maximum_upscale_percent is not None:
        growth = buckets.upscale_percent((fine.width, fine.height), (cut.target_width, cut.target_height))
        grown = growth > limits.maximum_upscale_percent
        left_out["size.maximumUpscalePercent"] = int(grown.sum())
        fine = fine.taken(~grown)
        cut = cuts(recipe.training, recipe.dataset, fine.names, (fine.width, fine.height))
    listed = [*found.bad, *_named(found, unusable, recipe)]
    facts = Facts(
        recipe=recipe.fingerprint(),
        found=len(found.names) + len(found.bad),
        bad=total([Counter(one.kind for one in found.bad), bad]),
        left_out=total([left_out]),
        listed=tuple(listed[:LISTED]),
    )
    return _columns(fine, cut, recipe), facts


def _columns(fine: PictureRows, cut: buckets.Cuts, recipe: Recipe) -> dict[str, Any]:
    masked, encoders = masks_text(recipe.training), recipe.encoders
    texts = keys.text_keys(fine.captions.flatten(), encoder=encoders.text, unpadded=masked)
    offsets = fine.captions.offsets.to_numpy()
    more: dict[str, Any] = {}
    video_facts: dict[str, Any] = {}
    if fine.pairs:
        names, versions = fine.pairs
        made = keys.image_keys(names, versions, cut, source=recipe.pairs, encoder=recipe.pair_encoder)
        more = {"pair": names, "pair_key": made}
    if (video := recipe.dataset.video) and fine.frames is not None:
        video_facts = {"frames": bucket_frames(fine.frames, video), "fps": video.fps}
        more = {"frames": video_facts["frames"].astype(np.uint32)}
    image_keys = keys.image_keys(
        fine.names, fine.versions, cut, source=recipe.source, encoder=encoders.vae, **video_facts
    )
    return more | {
        "name": fine.names,
        "width": fine.width.astype(np.uint32),
        "height": fine.height.astype(np.uint32),
        "target_width": cut.target_width.astype(np.uint32),
        "target_height": cut.target_height.astype(np.uint32),
        "captions": fine.captions,
        "image_key": image_keys,
        "text_keys": pa.ListArray.from_arrays(pa.array(offsets - offsets[0]), texts),
    }


def _named(found: PictureRows, unusable: Mapping[str, np.ndarray], recipe: Recipe) -> Iterator[Bad]:
    for row in np.flatnonzero(np.logical_or.reduce(list(unusable.values())))[:LISTED].tolist():
        kind = next(kind for kind, which in unusable.items() if which[row])
        yield Bad(found.names[row].as_py(), kind, _reason(kind, found, row, recipe))


def _reason(kind: str, found: PictureRows, row: int, recipe: Recipe) -> str:
    if kind == "without size":
        return f"no size that a picture has: {found.width[row]} x {found.height[row]}"
    if kind == "without length":
        return "no number of frames, or of frames a second, that a video has"
    return f"no caption (captions.strategy: {recipe.dataset.captions.strategy})"
