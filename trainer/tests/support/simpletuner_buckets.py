"""Write the table of SimpleTuner's bucket sizes, by its own functions, from a checkout of it.

    python simpletuner_buckets.py CHECKOUT >../data/simpletuner-buckets.tsv

Two of its modules are loaded as they are, and what these import of it is left empty. A line for each picture: family,
resolution, its type, crop aspect, the picture's width and height, and the width and height of its bucket.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import itertools
import re
import sys
import types
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

IMAGE = "simpletuner.helpers.multiaspect.image"
SAMPLE = "simpletuner.helpers.image_manipulation.training_sample"
ALIGNMENTS = {"Flux1": 64, "Flux2": 16, "StableDiffusion3": 64, "QwenImage": 32, "Wan": 32, "ZImage": 64}
"""What its models set aspect_bucket_alignment to (helpers/models/*/model.py); of Z-Image the option's default."""
RESOLUTIONS = {
    "PixelArea": (128, 192, 256, 384, 480, 512, 640, 768, 1024, 1280, 1536),
    "Area": (0.05, 0.1, 0.25, 0.5, 0.6, 1.0, 1.5, 2.0, 4.0),
    "Pixel": (128, 256, 384, 480, 512, 576, 720, 768, 1024),
}
PICTURES = (
    (1000, 1000),
    (1003, 1000),
    (1500, 1000),
    (1000, 1500),
    (1600, 900),
    (900, 1600),
    (4000, 3000),
    (1000, 2500),
    (3000, 800),
)
CROPS = {"Preserve": [], "Square": [], "Closest": [1.0, 1.5, 0.67, 1.78]}


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The two modules from the checkout; of the rest of its package, and of what only it needs, empty ones."""

    def __init__(self, checkout: Path) -> None:
        self._checkout = checkout

    def find_spec(self, name: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
        if name in (IMAGE, SAMPLE):
            path = self._checkout / f"{name.replace('.', '/')}.py"
            return importlib.util.spec_from_file_location(name, path)
        if name.partition(".")[0] in ("simpletuner", "trainingsample", "torchvision", "pillow_jxl"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = types.ModuleType(spec.name)
        vars(module).update(__path__=[], __getattr__=lambda name: MagicMock(name=name))
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing."""


def bucket(
    modules: tuple[Any, Any], size: tuple[int, int], *, step: int, kind: str, resolution: float, crop: str
) -> tuple[int, int]:
    """Where SimpleTuner puts a picture of this size."""
    image, sample = modules
    tracker = types.SimpleNamespace(
        get_args=lambda: types.SimpleNamespace(aspect_bucket_alignment=step, aspect_bucket_rounding=2),
        # It is asked for what a picture before this one got: the order of pictures would decide.
        get_resolution_by_aspect=lambda **_: None,
        set_resolution_by_aspect=lambda **_: None,
    )
    image.StateTracker = sample.StateTracker = tracker
    one = object.__new__(sample.TrainingSample)
    if kind == "PixelArea":  # as its DataBackendFactory converts it
        kind, resolution = "Area", resolution * resolution / 1000**2
    vars(one).update(
        original_size=size, image_metadata=None, valid_metadata=False, model=None, max_upscale_threshold=None,
        crop_enabled=True, crop_aspect=crop.lower(), crop_aspect_buckets=CROPS[crop], crop_coordinates=(0, 0),
        resolution=resolution, resolution_type=kind.lower(), target_size_calculator=image.resize_helpers[kind.lower()],
    )  # fmt: skip
    one._set_resolution()
    width, height = one.calculate_target_size()[0]
    return int(width), int(height)


def main(checkout: Path) -> None:
    sys.meta_path.insert(0, Finder(checkout))
    modules = importlib.import_module(IMAGE), importlib.import_module(SAMPLE)
    (version,) = re.findall(
        r'^__version__ = "(.+)"', (checkout / "simpletuner" / "__init__.py").read_text(), re.MULTILINE
    )
    sys.stdout.write(f"# SimpleTuner {version}\n")
    for (family, step), (kind, resolutions), crop in itertools.product(ALIGNMENTS.items(), RESOLUTIONS.items(), CROPS):
        for resolution, size in itertools.product(resolutions, PICTURES):
            found = bucket(modules, size, step=step, kind=kind, resolution=resolution, crop=crop)
            line = (family, f"{resolution:g}", kind, crop, *map(str, (*size, *found)))
            sys.stdout.write("\t".join(line) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
