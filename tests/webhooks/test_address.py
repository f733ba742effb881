"""Webhook addresses: valid URLs and refused addresses."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from rota.errors import InvalidInput
from rota.webhooks.model import parse_literal, parse_network, parse_url, refusal_reason


@pytest.mark.parametrize(
    ("text", "origin", "authority", "target"),
    [
        ("http://127.0.0.1:8080/hook?a=b", "http://127.0.0.1:8080", "127.0.0.1:8080", "/hook?a=b"),
        ("https://example.org", "https://example.org:443", "example.org", "/"),
        ("http://EXAMPLE.org./x", "http://example.org:80", "example.org.", "/x"),
        ("http://[::1]:9/", "http://[::1]:9", "[::1]:9", "/"),
        ("http://localhost/", "http://localhost:80", "localhost", "/"),
        ("http://10.0.0.7/", "http://10.0.0.7:80", "10.0.0.7", "/"),
        ("http://a1.b2/", "http://a1.b2:80", "a1.b2", "/"),
    ],
)
def test_parse_url_splits_valid_urls(text: str, origin: str, authority: str, target: str) -> None:
    url = parse_url(text)
    assert (url.origin, url.authority, url.target) == (origin, authority, target)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "begin with http"),
        ("example.org/x", "begin with http"),
        ("ftp://example.org/", "begin with http"),
        ("file:///etc/passwd", "begin with http"),
        ("http://", "host is missing"),
        ("http:///path", "host is missing"),
        ("http://example.org:0/", "port 0 is not valid"),
        ("http://example.org:99999/", "not a usable URL"),
        ("http://example.org\\@evil/", "not a usable URL|user or password"),
        ("http://user:pass@example.org/", "user or password"),
        ("http://user@example.org/", "user or password"),
        ("http://example.org/#part", "remove it"),
        ("http://example.org/#", "remove it"),
        ("http://exa mple.org/", "percent-encode"),
        ("http://example.org/\r\nx: y", "percent-encode"),
        ("http://bücher.example/", "percent-encode"),
        ("http://[::1/", "not a usable URL"),
        ("http://" + "a" * 3000, "at most 2048"),
        ("http://0x7f.1/", "four numbers"),
        ("http://0x7f000001/", "four numbers"),
        ("http://2852039166/", "four numbers"),
        ("http://0251.0376.0251.0376/", "four numbers"),
        ("http://169.254.43518/", "four numbers"),
        ("http://127.1/", "four numbers"),
        ("http://metadata.google.internal/computeMetadata/v1/", "metadata service"),
        ("http://METADATA.google.internal./", "metadata service"),
        ("http://instance-data/", "metadata service"),
    ],
)
def test_parse_url_refuses_invalid_urls(text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        parse_url(text)


def test_refusal_omits_password() -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_url("http://user:hunter2@example.org/")
    assert "hunter2" not in refused.value.message


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "169.254.1.1",
        "fe80::1",
        "fe80::1%1",
        "::ffff:169.254.169.254",
        "::ffff:a9fe:1",
        "fd00:ec2::254",
        "100.100.100.200",
        "64:ff9b::a9fe:a9fe",
        "2002:a9fe:a9fe::1",
        "224.0.0.1",
        "ff02::1",
        "0.0.0.0",  # noqa: S104
        "0.1.2.3",
        "::",
        "::ffff:0.0.0.0",
        "255.255.255.255",
    ],
)
def test_reserved_addresses_are_refused(address: str) -> None:
    assert "is refused: it is" in (refusal_reason(ip_address(address)) or "")


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "::1", "10.1.2.3", "192.168.0.1", "172.16.5.5", "fd12::1", "::ffff:127.0.0.1", "8.8.8.8"]
)
def test_loopback_and_private_addresses_are_allowed(address: str) -> None:
    assert refusal_reason(ip_address(address)) is None


def test_configured_networks_are_allowed() -> None:
    allow = [parse_network("169.254.1.0/24"), parse_network("fe80::/16")]
    assert refusal_reason(ip_address("169.254.1.9"), allow) is None
    assert refusal_reason(ip_address("::ffff:169.254.1.9"), allow) is None
    assert refusal_reason(ip_address("fe80::1"), allow) is None
    assert refusal_reason(ip_address("169.254.169.254"), allow) is not None
    with pytest.raises(InvalidInput, match="not a network"):
        parse_network("here")


def test_parse_literal_accepts_only_addresses() -> None:
    assert parse_literal("example.org") is None
    assert str(parse_literal("::1")) == "::1"
