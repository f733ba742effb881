"""Loads the concurrency policy that the configuration names."""

from __future__ import annotations

from rota.config.policy import POOLS, load
from rota.core.pool import ConcurrencyPolicy, NamedPolicy, PoolPolicy
from rota.errors import ConfigError, InvalidInput


def policy_named(name: str) -> ConcurrencyPolicy:
    """Rota's own, or what a package brings."""
    if name == POOLS:
        return PoolPolicy()
    try:
        return NamedPolicy(name, load(name))
    except InvalidInput as error:
        raise ConfigError(f"scheduler.policy: {error.message}") from error
