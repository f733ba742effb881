"""Signatures of webhook messages by the Standard Webhooks scheme, and their secrets.

A signature proves to a receiver with the secret that a message is from Rota, and when it was sent.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from datetime import datetime

from rota.errors import InvalidInput

SECRET_PREFIX = "whsec_"  # noqa: S105
_MIN_SECRET_BYTES, _MAX_SECRET_BYTES = 24, 64
"""Length of a decoded secret, in bytes."""


def make_secret(random_bytes: bytes) -> str:
    return SECRET_PREFIX + base64.b64encode(random_bytes).decode()


def check_secret(text: str) -> str:
    """Return the secret if it is valid. The error omits the value, because it may be a real secret."""
    try:
        key = base64.b64decode(text.removeprefix(SECRET_PREFIX), validate=True)
    except ValueError:  # includes text that is not ASCII
        key = b""
    if not text.startswith(SECRET_PREFIX) or not _MIN_SECRET_BYTES <= len(key) <= _MAX_SECRET_BYTES:
        raise InvalidInput(
            f"not a usable secret; write {SECRET_PREFIX} and {_MIN_SECRET_BYTES} to {_MAX_SECRET_BYTES} bytes in"
            " base64, or omit it to have one generated"
        )
    return text


def signature_headers(message_id: str, body: bytes, secrets: Sequence[str], at: datetime) -> dict[str, str]:
    """Return the headers with a signature for each secret, so that a receiver can switch secrets at any time."""
    seconds = str(int(at.timestamp()))
    signed = f"{message_id}.{seconds}.".encode() + body
    return {
        "webhook-id": message_id,
        "webhook-timestamp": seconds,
        "webhook-signature": " ".join(f"v1,{_sign(secret, signed)}" for secret in secrets),
    }


def _sign(secret: str, payload: bytes) -> str:
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    return base64.b64encode(hmac.new(key, payload, hashlib.sha256).digest()).decode()
