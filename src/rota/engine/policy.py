"""Loading of the configured concurrency policy, and of the failure policies of groups."""

from __future__ import annotations

from functools import cache

from rota.config.extension import load_policy
from rota.config.policy import CONCURRENCY_POLICY, GROUP_FAILURE_POLICY, POOLS_POLICY
from rota.core.group import POLICIES, GroupFailurePolicy
from rota.core.pool import ConcurrencyPolicy, PluginPolicy, PoolPolicy
from rota.errors import ConfigError, InvalidInput


def load_concurrency_policy(name: str) -> ConcurrencyPolicy:
    """Return a built-in or installed concurrency policy."""
    if name == POOLS_POLICY:
        return PoolPolicy()
    try:
        return PluginPolicy(name, load_policy(CONCURRENCY_POLICY, name))
    except InvalidInput as error:
        raise ConfigError(f"scheduler.policy: {error.message}") from error


@cache
def load_group_policy(name: str) -> GroupFailurePolicy:
    """Return a built-in or installed failure policy, loaded once. Raises `InvalidInput` for an unknown name."""
    builtin = POLICIES.get(name)
    if builtin is not None:
        return builtin
    policy: GroupFailurePolicy = load_policy(GROUP_FAILURE_POLICY, name)
    return policy
