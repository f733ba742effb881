"""The pinned head gate: a job that was made for one state of a branch runs only while the branch is there."""

from __future__ import annotations

import re

import msgspec

from rota.core.artifact import Outside, is_branch
from rota.core.fact import Head
from rota.core.status import Status
from rota.core.verdict import PASS, Unknown, Verdict, Wait
from rota.core.wait import WaitKind
from rota.errors import InvalidInput

_OID = re.compile(r"[0-9a-f]{4,64}")


class PinnedHead(msgspec.Struct, frozen=True, kw_only=True):
    branch: str
    oid: str


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """A pinned head, with the repository that has the branch."""

    repository: str
    head: PinnedHead

    @property
    def fact(self) -> Head:
        return Head(self.repository, self.head.branch)


def parse_pin(text: str) -> tuple[str, str | None]:
    """`main`, or `main@<oid>`: the branch, and the commit where one is given."""
    branch, at, oid = text.rpartition("@") if "@" in text else (text, "", "")
    if not is_branch(branch) or (at and not _OID.fullmatch(oid.lower())):
        raise InvalidInput(
            f"malformed pin: {text!r}; it is written BRANCH, or BRANCH@OID with 4 to 64 hexadecimal digits"
        )
    return branch, oid.lower() or None


def judge_pin(pin: Pin | None, outside: Outside) -> Verdict:
    if pin is None:
        return PASS
    if pin.fact not in outside.seen:
        return Unknown(facts=(pin.fact,), meanwhile=_wait(pin, f"pinned head mismatch on {pin.head.branch}"))
    if outside.seen[pin.fact] == pin.head.oid:
        return PASS
    return _wait(pin, f"pinned head mismatch on {pin.head.branch}")


def _wait(pin: Pin, detail: str) -> Wait:
    topic = f"head:{pin.repository}:{pin.head.branch}"
    return Wait(status=Status.WAITING_ON_DEPS, kind=WaitKind.PINNED_HEAD, detail=detail, on=(topic,))
