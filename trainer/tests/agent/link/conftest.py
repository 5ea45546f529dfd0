"""Gangs for the tests of the link: real links on 127.0.0.1, all in this process."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from gangs import Gang

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def gang_of() -> Iterator[Callable[..., Gang]]:
    """Makes a gang of so many nodes, with the link of rank 0 up and no member yet."""
    gangs: list[Gang] = []

    def make(nodes: int, **settings: float) -> Gang:
        gangs.append(Gang(nodes, **settings))
        return gangs[-1]

    yield make
    for gang in gangs:
        gang.end()
