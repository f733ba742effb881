"""Webhooks: signatures, and the secrets that make them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from standardwebhooks.webhooks import Webhook as Verifier
from standardwebhooks.webhooks import WebhookVerificationError

from rota.errors import InvalidInput
from rota.webhooks.signature import check_secret, make_secret, signature_headers

SECRET, OTHER_SECRET = make_secret(b"1" * 24), make_secret(b"2" * 32)


def test_signature_verifies_with_reference_library() -> None:
    body, now = b'{"type":"job.run.completed"}', datetime.now(UTC)
    headers = signature_headers("msg_1", body, [SECRET], now)
    assert Verifier(SECRET).verify(body, headers) == {"type": "job.run.completed"}
    with pytest.raises(WebhookVerificationError):
        Verifier(OTHER_SECRET).verify(body, headers)
    with pytest.raises(WebhookVerificationError):
        Verifier(SECRET).verify(body.replace(b"completed", b"failed"), headers)


def test_rotating_secrets_both_sign() -> None:
    body, now = b"{}", datetime.now(UTC)
    headers = signature_headers("msg_1", body, [SECRET, OTHER_SECRET], now)
    assert Verifier(SECRET).verify(body, headers) == Verifier(OTHER_SECRET).verify(body, headers) == {}


@pytest.mark.parametrize(
    "secret", ["", "hunter2", "whsec_", "whsec_!!!", "whsec_ü", make_secret(b"1" * 23), make_secret(b"1" * 65)]
)
def test_invalid_secret_is_refused_without_showing_it(secret: str) -> None:
    with pytest.raises(InvalidInput, match="not a usable secret") as refused:
        check_secret(secret)
    assert secret == "" or secret == "whsec_" or secret not in refused.value.message
    assert check_secret(SECRET) == SECRET
