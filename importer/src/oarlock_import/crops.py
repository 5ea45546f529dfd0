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
"""Up to this a size is no edge in pixels. Where the resolution is in pixels by area, SimpleTuner then takes the option for
all data sets for megapixels, and a data set's own for pixels all the same.
"""
_SQUARE = "of a square crop SimpleTuner asks it of each edge, the job of the area alone"
_ONCE = "a cached latent has one crop, drawn by the seed; SimpleTuner may draw another each epoch"


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
    _sizes(dataset, options, draft, kind=kind)
    _upscale(dataset, draft)
    _crop(dataset, draft)


def _sizes(dataset: Options, options: Options, draft: Draft, *, kind: str) -> None:
    """Limits: pictures below the minimum are left out, those above the maximum are made smaller first."""
    largest, target = "maximum_image_size", "target_downsample_size"
    given = {key: own_or_global(dataset, options, key) for key in _SIZES}
    if given[largest] and not given[target]:
        (dataset if largest in dataset else options).refused(largest, f"SimpleTuner itself asks for {target} beside it")
        return
    if given[target] and not given[largest]:
        dataset.ignored(target, f"it has no effect without {largest}")
        given[target] = None
    is_square = dataset.value("crop") and str(dataset.value("crop_aspect")).lower() == "square"
    for key, field in _SIZES.items():
        value = given[key]
        is_small = bool(value) and kind == "pixel_area" and 0 < value <= _MEGAPIXELS
        if is_small and key in dataset and key == "minimum_image_size":
            dataset.ignored(key, "SimpleTuner takes it for pixels, and no picture has so few")
        elif is_small and key in dataset:
            dataset.refused(
                key, f"SimpleTuner takes it for pixels: write the edge, such as {1000 * math.sqrt(value):.0f}"
            )
        elif value:
            edge = 1000 * math.sqrt(value) if is_small else value
            draft.put(field, edge)
            differs = _SQUARE if key == "minimum_image_size" and is_square and kind != "pixel" else ""
            dataset.mapped(key, words=f"-> {field}: {edge:g}", differs=differs)
        dataset.ignored(key, "0 is no limit")


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
    """Where a picture is cut, and to which shape: without `crop` what stands over its bucket's edges is cut as well."""
    aspect, style = str(dataset.value("crop_aspect")).lower(), str(dataset.value("crop_style")).lower()
    if style not in _STYLES:
        dataset.refused("crop_style", f"{style} is not here: use center, corner or random")
    if not dataset.value("crop"):
        for key in ("crop_aspect", "crop_aspect_buckets"):
            dataset.ignored(key, "crop is false")
        if style in _STYLES:
            draft.put("crop", {"aspect": "Preserve", "style": _STYLES[style]})
            differs = _ONCE if _STYLES[style] == "Random" else ""
            words = f"-> crop: Preserve, {_STYLES[style]}: what a bucket has no room for is cut off"
            dataset.mapped("crop", words=words, differs=differs)
            dataset.mapped("crop_style", words=f"-> crop.style: {_STYLES[style]}")
        return
    if aspect not in _ASPECTS:
        dataset.refused("crop_aspect", f"{aspect} is not here: use square, preserve, closest or random")
    if style not in _STYLES or aspect not in _ASPECTS:
        return
    draft.put("crop.aspect", _ASPECTS[aspect])
    draft.put("crop.style", _STYLES[style])
    dataset.mapped("crop", words="-> crop")
    dataset.mapped("crop_aspect", words=f"-> crop.aspect: {_ASPECTS[aspect]}")
    differs = _ONCE if "Random" in (_STYLES[style], _ASPECTS[aspect]) else ""
    dataset.mapped("crop_style", words=f"-> crop.style: {_STYLES[style]}", differs=differs)
    if aspect in ("closest", "random"):
        _aspects(dataset, dataset.value("crop_aspect_buckets"), draft)
    dataset.ignored("crop_aspect_buckets", f"crop_aspect {aspect} does not choose from a list")


def _aspects(dataset: Options, given: Any, draft: Draft) -> None:
    if not isinstance(given, list) or not all(isinstance(aspect, int | float) for aspect in given):
        dataset.refused("crop_aspect_buckets", "has to be a list of numbers; weights are not here")
        return
    dataset.carry(draft, "crop_aspect_buckets", value=[float(aspect) for aspect in given])
