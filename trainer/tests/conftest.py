"""Settings of all tests of the trainer."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

# A machine that is busy draws slowly, and that is no failure of what is tested.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What may take longest begins first, so that no worker is left with it at the end."""
    items.sort(key=lambda item: item.get_closest_marker("timeout") is None)
