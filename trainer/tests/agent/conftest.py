"""A real agent for each test that asks for one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))

from agent_process import Agent

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    process = Agent(tmp_path)
    yield process
    process.end()
