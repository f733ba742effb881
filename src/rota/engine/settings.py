"""Settings of the engine, made from the configuration, and policies by name.

A policy is built in, or an installed package provides it (`config/extension.py`).
"""

from __future__ import annotations

from datetime import timedelta
from functools import cache

import msgspec

from rota import config
from rota.config import Config
from rota.config.extension import CONCURRENCY_POLICY, GROUP_FAILURE_POLICY, POOLS_POLICY, load_policy
from rota.engine.transaction import Settings
from rota.errors import ConfigError, InvalidInput
from rota.home import Home
from rota.kernel.artifacts import ArtifactPaths
from rota.kernel.backpressure import QueueLimit, QueueLimits
from rota.kernel.breaker import BreakerPolicy
from rota.kernel.groups import POLICIES, GroupFailurePolicy
from rota.kernel.pools import ConcurrencyPolicy, PluginPolicy, PoolPolicy, PoolSizes
from rota.kernel.retry import RetryPolicies, RetryPolicy
from rota.retention.model import GcPolicy
from rota.webhooks.model import WebhookPolicy, parse_network


def settings_from_config(configuration: Config, home: Home) -> Settings:
    return Settings(
        pool_sizes=PoolSizes(config.pool_sizes(configuration)),
        policy=load_concurrency_policy(configuration.scheduler.policy),
        batch_size=configuration.scheduler.batch_size,
        kill_after=configuration.scheduler.kill_after,
        start_timeout=configuration.scheduler.start_timeout,
        spawn_delay=configuration.scheduler.spawn_delay,
        dispatch_interval=None
        if configuration.scheduler.dispatch_interval == "off"
        else configuration.scheduler.dispatch_interval,
        retry=RetryPolicies(
            default=_make_retry_policy(configuration.retry),
            named={name: _make_retry_policy(section) for name, section in configuration.policies.items()},
        ),
        breaker=BreakerPolicy(
            dispatch_failures=configuration.breaker.dispatch_failures,
            start_delays=configuration.breaker.start_delays,
            failures=None if configuration.breaker.failures == "off" else configuration.breaker.failures,
            window=configuration.breaker.window,
            cool_down=configuration.breaker.cool_down,
        ),
        artifact_paths=ArtifactPaths(
            jobs=str(home.jobs),
            sentinels=str(home.root / "tmp/merge-conflicts"),
            plan_doc=configuration.artifacts.plan_doc,
        ),
        queue=QueueLimits(
            total=_make_queue_limit(configuration.queue),
            flows={flow: _make_queue_limit(section) for flow, section in configuration.flows.items()},
        ),
        webhooks=WebhookPolicy(
            retries=configuration.webhooks.retries,
            base=configuration.webhooks.base,
            timeout=configuration.webhooks.timeout,
            allow=tuple(parse_network(network) for network in configuration.webhooks.allow),
        ),
    )


def make_gc_policy(section: config.GcConfig) -> GcPolicy:
    interval = None if isinstance(section.interval, str) else section.interval
    return GcPolicy(older_than=timedelta(days=section.days), interval=interval)


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


def _make_queue_limit(section: config.QueueConfig) -> QueueLimit:
    soft, hard = section.soft_limit, section.hard_limit
    return QueueLimit(soft=None if soft == "off" else soft, hard=None if hard == "off" else hard)


def _make_retry_policy(section: config.RetryConfig) -> RetryPolicy:
    return RetryPolicy(**msgspec.structs.asdict(section))
