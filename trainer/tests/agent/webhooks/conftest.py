"""Real receivers for each test that asks for them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from webhook_inbox import Inbox

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    server = Inbox()
    yield server
    server.end()


@pytest.fixture
def other() -> Iterator[Inbox]:
    server = Inbox()
    yield server
    server.end()
