"""The pinned head gate: a job that is pinned to a commit starts only while the branch is at that commit."""

from __future__ import annotations

import re

import msgspec

from rota.core.artifact import Observations, is_branch_name
from rota.core.fact import BranchHead
from rota.core.status import Status
from rota.core.verdict import PASS, Undecided, Verdict, Wait
from rota.core.wait import WaitKind
from rota.errors import InvalidInput

_OID = re.compile(r"[0-9a-f]{4,64}")


class PinnedHead(msgspec.Struct, frozen=True, kw_only=True):
    branch: str
    oid: str


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """A pinned head with the repository of its branch."""

    repository: str
    head: PinnedHead

    @property
    def fact(self) -> BranchHead:
        return BranchHead(self.repository, self.head.branch)


def parse_pin(text: str) -> tuple[str, str | None]:
    """Parse `main` or `main@<oid>` into the branch and the optional commit."""
    branch, at, oid = text.rpartition("@") if "@" in text else (text, "", "")
    if not is_branch_name(branch) or (at and not _OID.fullmatch(oid.lower())):
        raise InvalidInput(f"malformed pin: {text!r}; expected BRANCH, or BRANCH@OID with 4 to 64 hexadecimal digits")
    return branch, oid.lower() or None


def judge_pin(pin: Pin | None, observations: Observations) -> Verdict:
    if pin is None:
        return PASS
    if pin.fact not in observations.observed:
        return Undecided(facts=(pin.fact,), interim=_wait(pin, f"pinned head mismatch on {pin.head.branch}"))
    if observations.observed[pin.fact] == pin.head.oid:
        return PASS
    return _wait(pin, f"pinned head mismatch on {pin.head.branch}")


def _wait(pin: Pin, detail: str) -> Wait:
    topic = f"head:{pin.repository}:{pin.head.branch}"
    return Wait(status=Status.WAITING_ON_DEPS, kind=WaitKind.PINNED_HEAD, detail=detail, on=(topic,))
