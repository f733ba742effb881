"""Loads the concurrency policy that the configuration names."""

from __future__ import annotations

from rota.config.policy import POOLS, check_policy, entry_points
from rota.core.pool import ConcurrencyPolicy, NamedPolicy, PoolPolicy
from rota.errors import ConfigError, InvalidInput


def policy_named(name: str) -> ConcurrencyPolicy:
    """Rota's own, or what a package brings: a class that can be made without arguments, or an object."""
    if name == POOLS:
        return PoolPolicy()
    try:
        check_policy(name)
        found = entry_points()[name].load()
        policy = found() if isinstance(found, type) else found
    except InvalidInput as error:
        raise ConfigError(f"scheduler.policy: {error.message}") from None
    except Exception as error:
        raise ConfigError(
            f"scheduler.policy: the concurrency policy {name} cannot be loaded: {error!r}; mend it, or"
            " `rota config set scheduler.policy default`"
        ) from error
    if not callable(getattr(policy, "draws", None)):
        raise ConfigError(f"scheduler.policy: {name} is no concurrency policy: it has no method draws(job)")
    return NamedPolicy(name, policy)
