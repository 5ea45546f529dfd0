"""Settings of all tests of the trainer."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A machine that is busy draws slowly, and that is no failure of what is tested.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
