"""Sizes and crops of one data set."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from oarlock_import.captions import own_or_global

if TYPE_CHECKING:
    from oarlock_import.draft import Draft
    from oarlock_import.options import Options

_TYPES = {"pixel_area": "PixelArea", "pixel": "Pixel", "area": "Area"}
_ASPECTS = {"square": "Square", "preserve": "Preserve", "closest": "Closest", "random": "Random"}
_STYLES = {"center": "Center", "centre": "Center", "random": "Random", "corner": "Corner"}
_SIZES = {
    "minimum_image_size": "size.minimum",
    "maximum_image_size": "size.maximum",
    "target_downsample_size": "size.downsampleTo",
}
_MEGAPIXELS = 10
"""SimpleTuner takes a size up to this for megapixels, also where the resolution is in pixels by area."""


def place(dataset: Options, options: Options, draft: Draft) -> None:
    """Write resolution, crop and size limits."""
    kind = str(own_or_global(dataset, options, "resolution_type")).lower()
    if kind not in _TYPES:
        dataset.refused("resolution_type", f"{kind} is not here: use pixel_area, pixel or area")
        return
    resolution = own_or_global(dataset, options, "resolution") or options.value("resolution")
    draft.put("resolution", resolution)
    draft.put("resolutionType", _TYPES[kind])
    dataset.mapped("resolution", words=f"-> resolution: {resolution:g}")
    dataset.mapped("resolution_type", words=f"-> resolutionType: {_TYPES[kind]}")
    for key, field in _SIZES.items():
        value = own_or_global(dataset, options, key)
        if value:
            edge = 1000 * math.sqrt(value) if kind == "pixel_area" and 0 < value <= _MEGAPIXELS else value
            draft.put(field, edge)
            dataset.mapped(key, words=f"-> {field}: {edge:g}")
        dataset.ignored(key, "0 is no limit")
    _upscale(dataset, draft)
    _crop(dataset, draft)


def _upscale(dataset: Options, draft: Draft) -> None:
    threshold = dataset.value("max_upscale_threshold")
    if threshold is None:
        return
    percent = round(threshold * 100)
    if abs(threshold * 100 - percent) > 1e-6:
        dataset.refused("max_upscale_threshold", "has to be whole percents, such as 0.25")
        return
    dataset.carry(draft, "max_upscale_threshold", value=percent)


def _crop(dataset: Options, draft: Draft) -> None:
    crop = dataset.value("crop")
    if not crop:
        draft.put("crop", {"aspect": "Preserve", "style": "Center"})
        dataset.mapped("crop", words="-> crop: Preserve, Center")
        for key in ("crop_aspect", "crop_style", "crop_aspect_buckets"):
            dataset.ignored(key, "crop is false")
        return
    aspect, style = str(dataset.value("crop_aspect")).lower(), str(dataset.value("crop_style")).lower()
    if style not in _STYLES:
        dataset.refused("crop_style", f"{style} is not here: use center, corner or random")
    if aspect not in _ASPECTS:
        dataset.refused("crop_aspect", f"{aspect} is not here: use square, preserve, closest or random")
    if style not in _STYLES or aspect not in _ASPECTS:
        return
    draft.put("crop.aspect", _ASPECTS[aspect])
    draft.put("crop.style", _STYLES[style])
    dataset.mapped("crop", words="-> crop")
    dataset.mapped("crop_aspect", words=f"-> crop.aspect: {_ASPECTS[aspect]}")
    once = "a cached latent has one crop, drawn by the seed; SimpleTuner may draw another each epoch"
    differs = once if "Random" in (_STYLES[style], _ASPECTS[aspect]) else ""
    dataset.mapped("crop_style", words=f"-> crop.style: {_STYLES[style]}", differs=differs)
    if aspect in ("closest", "random"):
        _aspects(dataset, dataset.value("crop_aspect_buckets"), draft)
    dataset.ignored("crop_aspect_buckets", f"crop_aspect {aspect} does not choose from a list")


def _aspects(dataset: Options, given: Any, draft: Draft) -> None:
    if not isinstance(given, list) or not all(isinstance(aspect, int | float) for aspect in given):
        dataset.refused("crop_aspect_buckets", "has to be a list of numbers; weights are not here")
        return
    dataset.carry(draft, "crop_aspect_buckets", value=[float(aspect) for aspect in given])
