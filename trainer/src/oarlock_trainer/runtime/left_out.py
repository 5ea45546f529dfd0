"""Imports without what a library takes along only because it is installed: paid before the first step after every fault."""

from __future__ import annotations

import importlib.metadata
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def left_out(*packages: str) -> Iterator[None]:
    """Whoever tries these packages meanwhile finds them not installed; what is imported already stays."""
    hidden = [package for package in packages if package not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None is Python's own mark for it
    try:
        yield
    finally:
        for package in hidden:
            del sys.modules[package]


@contextmanager
def unsearched() -> Iterator[None]:
    """Nobody reads the lists of files of all that is installed, to learn which distribution each package is of."""
    search = importlib.metadata.packages_distributions
    importlib.metadata.packages_distributions = dict
    try:
        yield
    finally:
        importlib.metadata.packages_distributions = search
