"""Loads the concurrency policy that the configuration names, and the failure policies that groups name."""

from __future__ import annotations

from functools import cache

from rota.config.extension import load
from rota.config.policy import CONCURRENCY, GROUP_FAILURE, POOLS
from rota.core.group import POLICIES, GroupFailurePolicy
from rota.core.pool import ConcurrencyPolicy, NamedPolicy, PoolPolicy
from rota.errors import ConfigError, InvalidInput


def policy_named(name: str) -> ConcurrencyPolicy:
    """Rota's own, or what a package brings."""
    if name == POOLS:
        return PoolPolicy()
    try:
        return NamedPolicy(name, load(CONCURRENCY, name))
    except InvalidInput as error:
        raise ConfigError(f"scheduler.policy: {error.message}") from error


@cache
def group_policy_named(name: str) -> GroupFailurePolicy:
    """Rota's own, or what a package brings; loaded once. Refused where there is none of that name."""
    own = POLICIES.get(name)
    if own is not None:
        return own
    policy: GroupFailurePolicy = load(GROUP_FAILURE, name)
    return policy
