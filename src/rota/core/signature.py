"""Signatures by the Standard Webhooks scheme: who has the secret knows that a message is Rota's, and of when."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from datetime import datetime

from rota.errors import InvalidInput

PREFIX = "whsec_"
_LEAST, _MOST = 24, 64
"""Bytes that a secret has."""


def make_secret(random: bytes) -> str:
    return PREFIX + base64.b64encode(random).decode()


def check_secret(text: str) -> str:
    """The secret is not in the refusal: what is refused may be one all the same."""
    try:
        key = base64.b64decode(text.removeprefix(PREFIX), validate=True)
    except ValueError:  # also of what is not even ASCII
        key = b""
    if not text.startswith(PREFIX) or not _LEAST <= len(key) <= _MOST:
        raise InvalidInput(
            f"not a usable secret; it is {PREFIX} and {_LEAST} to {_MOST} bytes in base64: without one, one is made"
        )
    return text


def headers(message: str, body: bytes, secrets: Sequence[str], at: datetime) -> dict[str, str]:
    """One signature for each secret, so that a receiver can change over at its own time."""
    seconds = str(int(at.timestamp()))
    signed = f"{message}.{seconds}.".encode() + body
    return {
        "webhook-id": message,
        "webhook-timestamp": seconds,
        "webhook-signature": " ".join(f"v1,{_sign(secret, signed)}" for secret in secrets),
    }


def _sign(secret: str, signed: bytes) -> str:
    key = base64.b64decode(secret.removeprefix(PREFIX))
    return base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
