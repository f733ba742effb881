"""What the configuration means to the engine."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from rota import config
from rota.config import Config
from rota.core.address import read_network
from rota.core.artifact import MissingProducer, Places
from rota.core.backpressure import QueueLimit, QueueLimits
from rota.core.breaker import BreakerPolicy
from rota.core.gc import GcPolicy
from rota.core.pool import Limits
from rota.core.retry import RetryPolicies, RetryPolicy
from rota.core.webhook import HookPolicy
from rota.engine.policy import policy_named
from rota.engine.work import Settings
from rota.home import Home


def settings_of(given: Config, home: Home) -> Settings:
    return Settings(
        limits=Limits(given.pools),
        policy=policy_named(given.scheduler.policy),
        batch_size=given.scheduler.batch_size,
        kill_after=given.scheduler.kill_after,
        start_timeout=given.scheduler.start_timeout,
        spawn_delay=given.scheduler.spawn_delay,
        heartbeat=None if given.scheduler.heartbeat == "off" else given.scheduler.heartbeat,
        retry=RetryPolicies(
            default=_policy(given.retry), named={name: _policy(each) for name, each in given.policies.items()}
        ),
        breaker=BreakerPolicy(
            dispatch_failures=given.breaker.dispatch_failures,
            failures=None if given.breaker.failures == "off" else given.breaker.failures,
            window=given.breaker.window,
            cool_down=given.breaker.cool_down,
        ),
        places=Places(
            jobs=str(home.jobs), sentinels=str(home.root / "tmp/merge-conflicts"), plan_doc=given.artifacts.plan_doc
        ),
        missing_producer=MissingProducer(given.artifacts.missing_producer),
        queue=QueueLimits(
            whole=_queue_limit(given.queue), flows={flow: _queue_limit(each) for flow, each in given.flows.items()}
        ),
        webhooks=HookPolicy(
            retries=given.webhooks.retries,
            base=given.webhooks.base,
            timeout=given.webhooks.timeout,
            allow=tuple(read_network(each) for each in given.webhooks.allow),
        ),
    )


def _queue_limit(given: config.Queue) -> QueueLimit:
    soft, hard = given.soft_limit, given.hard_limit
    return QueueLimit(soft=None if soft == "off" else soft, hard=None if hard == "off" else hard)


def gc_policy(given: config.Gc) -> GcPolicy:
    interval = None if isinstance(given.interval, str) else given.interval
    return GcPolicy(older_than=timedelta(days=given.days), interval=interval)


def _policy(given: config.Retry) -> RetryPolicy:
    return RetryPolicy(**msgspec.structs.asdict(given))
