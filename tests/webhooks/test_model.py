"""Webhooks: retries of deliveries, secrets in rotation, and default subscriptions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from rota.ids import WebhookId
from rota.kernel.job import JobWebhook
from rota.webhooks.model import DEFAULT_MESSAGES, Webhook, WebhookPolicy
from rota.webhooks.signature import make_secret

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECRET, OTHER_SECRET = make_secret(b"1" * 24), make_secret(b"2" * 32)


def test_dec_009_three_retries_with_doubling_delays() -> None:
    policy = WebhookPolicy()
    assert [policy.retry_delay(attempts, 0.5) for attempts in (1, 2, 3, 4)] == [
        timedelta(seconds=5),
        timedelta(seconds=10),
        timedelta(seconds=20),
        None,
    ]


@given(st.integers(1, 2000), st.integers(0, 1000), st.floats(0, 1))
def test_dec_009_retries_always_end(attempts: int, retries: int, fraction: float) -> None:
    delay = WebhookPolicy(retries=retries).retry_delay(attempts, fraction)
    assert (delay is None) == (attempts > retries)
    assert delay is None or timedelta() < delay <= timedelta(days=1)


def test_retry_delay_has_jitter() -> None:
    policy = WebhookPolicy()
    assert policy.retry_delay(1, 0.0) == timedelta(seconds=4.5)
    assert policy.retry_delay(1, 1.0) == timedelta(seconds=5.5)


def test_old_secret_signs_until_its_expiry() -> None:
    until = NOW + timedelta(hours=24)
    hook = Webhook(
        id=WebhookId(1),
        url="http://a/",
        events=DEFAULT_MESSAGES,
        secret=SECRET,
        old_secret=OTHER_SECRET,
        old_secret_until=until,
        created_at=NOW,
    )
    assert hook.secrets(NOW) == (SECRET, OTHER_SECRET)
    assert hook.secrets(until) == (SECRET,)


def test_job_webhook_subscription_defaults() -> None:
    assert [
        kind for kind in ("job.run.completed", "job.run.cancelled") if JobWebhook(urls=()).is_subscribed_to(kind)
    ] == ["job.run.completed"]
    assert JobWebhook(urls=(), events=("job.run.cancelled",)).is_subscribed_to("job.run.cancelled")
    assert not JobWebhook(urls=(), events=("job.run.cancelled",)).is_subscribed_to("job.run.completed")
