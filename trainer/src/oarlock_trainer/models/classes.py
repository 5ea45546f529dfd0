"""Diffusers' classes, imported without what a training process has no use for.

diffusers imports transformers, scipy, accelerate and peft wherever they are installed, for pipelines, LoRA loaders and
schedulers that a rank never touches: a third of its import time, paid before the first step after every fault. Its own
switches for "not installed" are used, and put back. The price: a process that imported a class from here can no longer
import diffusers' pipelines; whoever needs both imports the pipeline first.
"""

from __future__ import annotations

import importlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from oarlock_trainer.runtime.left_out import left_out, unsearched

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oarlock_trainer.models.family import ClassName

_UNUSED = ("transformers", "scipy", "accelerate", "peft", "bitsandbytes")


def imported(name: ClassName) -> Any:
    """The class."""
    with _lean():
        return getattr(importlib.import_module(name.module), name.name)


@contextmanager
def _lean() -> Iterator[None]:
    with left_out("transformers"):  # some modules ask no switch, but try the import and cope with its failure
        with unsearched():  # for packages of which none is used here
            import diffusers.utils.import_utils as switches  # noqa: PLC0415 - a quarter of a second, for those who call

        names = [f"_{package}_available" for package in _UNUSED]
        kept = {name: getattr(switches, name) for name in names if hasattr(switches, name)}
        for name in kept:
            setattr(switches, name, False)
        try:
            yield
        finally:
            for name, value in kept.items():
                setattr(switches, name, value)
