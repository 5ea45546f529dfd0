"""The real helm."""

from __future__ import annotations

from pathlib import Path

import pytest

from oarlock_local.build import helm


@pytest.fixture(scope="session")
def helm_program() -> Path:
    return helm()
