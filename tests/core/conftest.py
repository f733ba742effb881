"""Rules are checked, not timed: on a busy machine no example counts as failed for being slow."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("core", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("core")
