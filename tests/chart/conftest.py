"""The real helm, in both versions that people install charts with."""

from __future__ import annotations

from pathlib import Path

import pytest

from oarlock_local.build import helm, helm3


@pytest.fixture(scope="session")
def helm_program() -> Path:
    return helm()


@pytest.fixture(scope="session")
def helm_programs(helm_program: Path) -> dict[str, Path]:
    return {"helm 4": helm_program, "helm 3": helm3()}
