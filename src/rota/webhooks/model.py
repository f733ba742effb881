"""Webhooks: messages about events, and retries of failed deliveries (DEC-009).

A delivery is one message to one receiver. It is PENDING until the receiver accepts it or its attempts are exhausted;
after that, only a manual redelivery sends it again. A failing endpoint is held for a while and then probed with a
single message.

Addresses in loopback and private networks are allowed, because most receivers of a scheduler run there. Refused are
addresses that no receiver has or that give away the machine's own credentials: link-local addresses, cloud metadata
services, unspecified addresses, multicast and broadcast. A host name proves nothing, so the sender checks the resolved
address again at each connection.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import IntEnum, StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

import msgspec

from rota.errors import InvalidInput
from rota.ids import DeliveryId, GroupId, JobId, RunId, WebhookId
from rota.kernel.job import DEFAULT_JOB_MESSAGES, MAX_URL_LENGTH, RUN_COMPLETED, RUN_FAILED, RUN_SKIPPED
from rota.mask import MASK, mask_query

RUN_CANCELLED, JOB_BLOCKED, GROUP_FINISHED = "job.run.cancelled", "job.blocked", "group.finished"
TEST_MESSAGE = "webhook.test"
MESSAGES: Mapping[str, str] = {
    "job.completed": RUN_COMPLETED,
    "job.failed": RUN_FAILED,
    "job.skipped": RUN_SKIPPED,
    "job.cancelled": RUN_CANCELLED,
    "job.blocked_by_dependency": JOB_BLOCKED,
    "group.finished": GROUP_FINISHED,
}
"""Events that can trigger a message, with the message kind."""
JOB_MESSAGES = tuple(kind for kind in MESSAGES.values() if kind != GROUP_FINISHED)
DEFAULT_MESSAGES = (*DEFAULT_JOB_MESSAGES, GROUP_FINISHED)
"""Default subscription of an endpoint."""
HOLD_AFTER_FAILURES = 10
"""Failed deliveries in a row after which an endpoint is held."""
HOLD_DURATION = timedelta(minutes=10)
OLD_SECRET_LIFETIME = timedelta(hours=24)
HTTP_GONE = 410
_RETRY_MULTIPLIER = 2
_RETRY_JITTER = 0.1
_MAX_RETRY_DELAY = timedelta(days=1)
IpAddress = IPv4Address | IPv6Address
IpNetwork = IPv4Network | IPv6Network
_METADATA_NAMES = frozenset(
    {"metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal"}
)
_METADATA = frozenset(
    map(
        ip_address,
        ("169.254.169.254", "168.63.129.16", "100.100.100.200", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254"),
    )
)
_BROADCAST = ip_address("255.255.255.255")
_THIS_HOST = ip_network("0.0.0.0/8")
_IPV4_EMBEDDING = (ip_network("64:ff9b::/96"), ip_network("::/96"))
_NUMERIC_HOST = re.compile(r"(0x[0-9a-f]*|[0-9]+)\.?$", re.IGNORECASE)
"""Last label of a host that a resolver reads as a number."""


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint: receives the message kinds that it subscribes to, for all jobs."""

    id: WebhookId
    url: str
    events: tuple[str, ...]
    secret: str
    old_secret: str | None = None
    """Previous secret; it also signs messages until `old_secret_until`."""
    old_secret_until: datetime | None = None
    created_at: datetime
    disabled_at: datetime | None = None
    disabled_reason: str | None = None
    failures: int = 0
    """Failed deliveries in a row."""
    held_until: datetime | None = None
    """Time until which messages are held. After it, a single message is sent, and the rest when that one is
    accepted."""
    unreadable: str | None = None
    """Error that makes the stored record unusable, if any."""

    @property
    def is_enabled(self) -> bool:
        return self.disabled_at is None

    def secrets(self, now: datetime) -> tuple[str, ...]:
        """Return the secrets that sign a message."""
        is_kept = self.old_secret_until is not None and now < self.old_secret_until
        return (self.secret, self.old_secret) if is_kept and self.old_secret is not None else (self.secret,)


class DeliveryState(StrEnum):
    """State of a delivery."""

    PENDING = "PENDING"
    DELIVERED = "DELIVERED"
    FAILED = "FAILED"


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """A message to one receiver."""

    id: DeliveryId
    message_id: str
    """Id that the receiver sees; the same in each attempt."""
    webhook: WebhookId | None
    """Endpoint; `None` if the URL comes from a job."""
    receiver: str
    """Unit of concurrency: the endpoint, or the host of a job's URL."""
    url: str
    kind: str
    job: JobId | None = None
    run: RunId | None = None
    group: GroupId | None = None
    state: DeliveryState = DeliveryState.PENDING
    attempts: int = 0
    attempts_since_resend: int = 0
    """Attempts since the last manual redelivery."""
    created_at: datetime
    next_at: datetime | None = None
    finished_at: datetime | None = None
    reason: str | None = None
    """Reason why the message is not delivered, if known."""


class DeliveryAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """An exchange with a receiver."""

    at: datetime
    duration: timedelta
    status: int | None = None
    """HTTP status of the response; `None` without a response."""
    error: str | None = None
    """Reason of the failure; `None` if the receiver accepted the message."""

    @property
    def is_success(self) -> bool:
        return self.error is None


class WebhookPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The `[webhooks]` configuration."""

    retries: int = 3
    base: timedelta = timedelta(seconds=5)
    timeout: timedelta = timedelta(seconds=30)
    """Limit for a whole exchange."""
    allow: tuple[IpNetwork, ...] = ()
    """Networks that are allowed although their addresses would be refused."""

    def retry_delay(self, attempts: int, random_fraction: float) -> timedelta | None:
        """Return the delay after this number of failed attempts, or `None` if they are exhausted. `random_fraction` is
        between 0 and 1."""
        if attempts > self.retries:
            return None
        try:
            delay = (
                self.base * float(_RETRY_MULTIPLIER ** (attempts - 1)) * (1 + _RETRY_JITTER * (2 * random_fraction - 1))
            )
        except OverflowError:
            return _MAX_RETRY_DELAY
        return min(delay, _MAX_RETRY_DELAY)


class Url(msgspec.Struct, frozen=True, kw_only=True):
    """A validated URL, split into its parts."""

    is_secure: bool
    host: str
    """Host to resolve: a name, or an address without brackets."""
    port: int
    authority: str
    """Value of the `Host` header."""
    target: str

    @property
    def origin(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_secure else 'http'}://{host}:{self.port}"


def parse_url(text: str) -> Url:
    """Parse a URL, or raise `InvalidInput` with the reason."""
    if len(text) > MAX_URL_LENGTH:
        raise InvalidInput(f"the URL has {len(text)} characters; shorten it to at most {MAX_URL_LENGTH}")
    if not text.isascii() or not text.isprintable() or " " in text:
        raise InvalidInput(
            f"not a usable URL: {_mask_url(text)!r}; percent-encode spaces and non-ASCII characters, and write an"
            " internationalized host name as xn--…"
        )
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise InvalidInput(f"not a usable URL: {_mask_url(text)}; the host or port is invalid") from None
    if parts.scheme not in ("http", "https"):
        raise InvalidInput(f"not a usable URL: {_mask_url(text)}; it must begin with http:// or https://")
    if parts.username is not None or parts.password is not None:
        raise InvalidInput(
            "a URL with a user or password is refused; remove them: messages are authenticated by their signature"
        )
    if "#" in text:
        raise InvalidInput(f"{_mask_url(text)}: the part after # is never sent to a server; remove it")
    if port == 0:
        raise InvalidInput(f"not a usable URL: {_mask_url(text)}; port 0 is not valid")
    if not host or "\\" in text:
        raise InvalidInput(f"not a usable URL: {_mask_url(text)}; the host is missing")
    is_secure = parts.scheme == "https"
    shown = f"[{host}]" if ":" in host else host
    return Url(
        is_secure=is_secure,
        host=_check_host(host, text),
        port=port or (443 if is_secure else 80),
        authority=shown if port is None else f"{shown}:{port}",
        target=(parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
    )


def _mask_url(text: str) -> str:
    """Return a refused URL without its query and without anything that can be a user and password."""
    return mask_query(re.sub(r"//.*@", f"//{MASK}@", text))


def _check_host(host: str, url: str) -> str:
    name = host.rstrip(".").lower()
    if name in _METADATA_NAMES:
        raise InvalidInput(f"{host} is refused: it is a metadata service, which exposes credentials")
    if parse_literal(name) is None:
        if ":" in name or "%" in name or not name:
            raise InvalidInput(f"not a usable URL: {_mask_url(url)}; the host is invalid")
        if _NUMERIC_HOST.match(name.rpartition(".")[2]):
            raise InvalidInput(
                f"{host} is not a host name; write the address as four numbers, for example http://127.0.0.1/"
            )
    return name


def parse_literal(host: str) -> IpAddress | None:
    """Return the host as an address if it is an address literal."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def refusal_reason(address: IpAddress, allow: Sequence[IpNetwork] = ()) -> str | None:
    """Return why messages to this address are refused, or `None` if they are allowed."""
    unwrapped = _unwrap_address(address)
    if any(network.version == unwrapped.version and unwrapped in network for network in allow):
        return None
    if unwrapped in _METADATA:
        kind = "a metadata service, which exposes credentials"
    elif unwrapped.is_link_local:
        kind = "link-local"
    elif unwrapped.is_multicast:
        kind = "multicast"
    elif unwrapped.is_unspecified or (unwrapped.version == 4 and unwrapped in _THIS_HOST):
        kind = "an unspecified address"
    elif unwrapped == _BROADCAST:
        kind = "the broadcast address"
    else:
        return None
    return f"{address} is refused: it is {kind}; add its network to webhooks.allow to permit it"


def _unwrap_address(address: IpAddress) -> IpAddress:
    """Return the IPv4 address embedded in an IPv6 address, or the address without its scope id."""
    if not isinstance(address, IPv6Address):
        return address
    if address.scope_id is not None:
        address = IPv6Address(int(address))
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    has_embedded = int(address) > 1 and any(address in network for network in _IPV4_EMBEDDING)
    return IPv4Address(int(address) & 0xFFFFFFFF) if has_embedded else address


def parse_network(text: str) -> IpNetwork:
    try:
        return ip_network(text, strict=False)
    except ValueError:
        raise InvalidInput(f"not a network: {text!r}; write it like 169.254.1.0/24") from None


class ReceiverHealth(IntEnum):
    """Outcome of the last attempt. A better health may use the slots of every worse health too."""

    FAILING = 0
    NEW = 1
    HEALTHY = 2


MAX_CONCURRENT: Mapping[ReceiverHealth, int] = {
    ReceiverHealth.FAILING: 64,
    ReceiverHealth.NEW: 96,
    ReceiverHealth.HEALTHY: 128,
}
"""Maximum messages in flight to all receivers of this health or worse."""
MAX_PER_RECEIVER: Mapping[ReceiverHealth, int] = {
    ReceiverHealth.FAILING: 4,
    ReceiverHealth.NEW: 1,
    ReceiverHealth.HEALTHY: 4,
}
"""Maximum messages in flight to one receiver."""
MAX_FIRST_ATTEMPTS: Mapping[ReceiverHealth, int] = {
    ReceiverHealth.FAILING: 1,
    ReceiverHealth.NEW: 1,
    ReceiverHealth.HEALTHY: 4,
}
"""Maximum first attempts among the messages to one receiver."""


class DeliverySlots:
    """Number of messages that may be in flight at once, in total and for each receiver.

    The health of a receiver is the outcome of its last attempt. A receiver that hangs occupies its slots until the
    timeout. Therefore failing receivers share a part of all slots, new receivers get some more, and the rest is
    reserved for healthy receivers: they find a free slot however many receivers hang.

    A new receiver gets a single message until it has responded. A failing receiver gets one first attempt at a time;
    its other slots are for messages that are being retried.
    """

    def __init__(self, in_flight: Mapping[str, int], health: Mapping[str, ReceiverHealth]) -> None:
        """Start with the number of messages in flight to each receiver."""
        self._health = health
        self._in_flight_by_receiver = dict(in_flight)
        self._in_flight_by_health = dict.fromkeys(ReceiverHealth, 0)
        for receiver, count in in_flight.items():
            self._in_flight_by_health[self.health_of(receiver)] += count

    def health_of(self, receiver: str) -> ReceiverHealth:
        return self._health.get(receiver, ReceiverHealth.NEW)

    def count_free(self, receiver: str) -> int:
        own = self.health_of(receiver)
        room = MAX_PER_RECEIVER[own] - self._in_flight_by_receiver.get(receiver, 0)
        for health in ReceiverHealth:
            if health >= own:
                in_flight = sum(count for other, count in self._in_flight_by_health.items() if other <= health)
                room = min(room, MAX_CONCURRENT[health] - in_flight)
        return max(0, room)

    def allocate(self, receiver: str, count: int) -> None:
        self._in_flight_by_receiver[receiver] = self._in_flight_by_receiver.get(receiver, 0) + count
        self._in_flight_by_health[self.health_of(receiver)] += count
