"""When a message is tried again, and how it is signed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook as Verifier
from standardwebhooks.webhooks import WebhookVerificationError

from rota.core.signature import check_secret, headers, make_secret
from rota.core.webhook import USUAL, HookPolicy, JobHook, Webhook
from rota.errors import InvalidInput
from rota.ids import WebhookId

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ONE, OTHER = make_secret(b"1" * 24), make_secret(b"2" * 32)


def test_dec_009_one_try_and_three_more_each_after_twice_the_time() -> None:
    policy = HookPolicy()
    assert [policy.again_after(tried, 0.5) for tried in (1, 2, 3, 4)] == [
        timedelta(seconds=5), timedelta(seconds=10), timedelta(seconds=20), None,
    ]  # fmt: skip


@given(st.integers(1, 2000), st.integers(0, 1000), st.floats(0, 1))
def test_dec_009_it_comes_to_an_end_whatever_is_configured(tried: int, retries: int, chance: float) -> None:
    delay = HookPolicy(retries=retries).again_after(tried, chance)
    assert (delay is None) == (tried > retries)
    assert delay is None or timedelta() < delay <= timedelta(days=1)


def test_many_that_failed_together_do_not_come_back_together() -> None:
    policy = HookPolicy()
    assert policy.again_after(1, 0.0) == timedelta(seconds=4.5)
    assert policy.again_after(1, 1.0) == timedelta(seconds=5.5)


def test_a_signature_is_what_the_public_library_verifies() -> None:
    body, now = b'{"type":"job.run.completed"}', datetime.now(UTC)
    signed = headers("msg_1", body, [ONE], now)
    assert Verifier(ONE).verify(body, signed) == {"type": "job.run.completed"}
    with pytest.raises(WebhookVerificationError):
        Verifier(OTHER).verify(body, signed)
    with pytest.raises(WebhookVerificationError):
        Verifier(ONE).verify(body.replace(b"completed", b"failed"), signed)


def test_while_a_secret_is_changed_both_sign() -> None:
    body, now = b"{}", datetime.now(UTC)
    signed = headers("msg_1", body, [ONE, OTHER], now)
    assert Verifier(ONE).verify(body, signed) == Verifier(OTHER).verify(body, signed) == {}


def test_an_old_secret_signs_until_its_time_is_over() -> None:
    until = NOW + timedelta(hours=24)
    hook = Webhook(
        id=WebhookId(1), url="http://a/", events=USUAL, secret=ONE, old_secret=OTHER, old_secret_until=until,
        created_at=NOW,
    )  # fmt: skip
    assert hook.secrets(NOW) == (ONE, OTHER)
    assert hook.secrets(until) == (ONE,)


@pytest.mark.parametrize(
    "secret", ["", "hunter2", "whsec_", "whsec_!!!", "whsec_ü", make_secret(b"1" * 23), make_secret(b"1" * 65)]
)
def test_a_secret_that_cannot_be_used_is_refused_and_not_said(secret: str) -> None:
    with pytest.raises(InvalidInput, match="not a usable secret") as refused:
        check_secret(secret)
    assert secret == "" or secret == "whsec_" or secret not in refused.value.message
    assert check_secret(ONE) == ONE


def test_a_job_is_told_of_as_it_asked() -> None:
    assert [kind for kind in ("job.run.completed", "job.run.cancelled") if JobHook(urls=()).wants(kind)] == [
        "job.run.completed"
    ]
    assert JobHook(urls=(), events=("job.run.cancelled",)).wants("job.run.cancelled")
    assert not JobHook(urls=(), events=("job.run.cancelled",)).wants("job.run.completed")
