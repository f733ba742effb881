"""Statuses: the table of legal transitions, and the function that checks a transition; a claim is a compare-and-set in
SQL.

    WAITING_ON_DEPS ⇄ QUEUED ⇄ WAITING_ON_LOCKS      wait at a gate; WAITING_ON_DEPS ⇄ WAITING_ON_LOCKS too
                        │ ▲
                        ▼ │ nothing was started
                     DISPATCHED ─▶ RUNNING           either can end: COMPLETED | FAILED | SKIPPED | CANCELLED

    a waiting job   ─▶ CANCELLED | SKIPPED | BLOCKED_BY_DEPENDENCY, or FAILED if it cannot be started
    a terminal job  ─▶ QUEUED, by rewind only
    UNREADABLE      ─▶ COMPLETED | FAILED | SKIPPED | CANCELLED

UNREADABLE is never stored: it represents a stored text that is not a status, from a damaged file or a newer version.
Such a job never starts. It ends when its open run ends, or when it is cancelled.

DISPATCHED is internal: the job is claimed and its child is not yet confirmed; every surface shows RUNNING. Upholds
DEC-006 (one vocabulary) and the rule that a terminal job leaves its state only by rewind.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Status(StrEnum):
    QUEUED = "QUEUED"
    WAITING_ON_DEPS = "WAITING_ON_DEPS"
    WAITING_ON_LOCKS = "WAITING_ON_LOCKS"
    DISPATCHED = "DISPATCHED"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"
    CANCELLED = "CANCELLED"
    BLOCKED_BY_DEPENDENCY = "BLOCKED_BY_DEPENDENCY"
    UNREADABLE = "UNREADABLE"

    @property
    def public(self) -> Status:
        """Status to display: DISPATCHED is internal."""
        return Status.RUNNING if self is Status.DISPATCHED else self


_WAITING = frozenset({Status.QUEUED, Status.WAITING_ON_DEPS, Status.WAITING_ON_LOCKS})
_ENDED_BY_A_RUN = frozenset({Status.COMPLETED, Status.FAILED, Status.SKIPPED, Status.CANCELLED})
_ENDED_WITHOUT_A_RUN = frozenset({Status.FAILED, Status.SKIPPED, Status.CANCELLED, Status.BLOCKED_BY_DEPENDENCY})
_REWOUND = frozenset({Status.QUEUED})

TRANSITIONS: Mapping[Status, frozenset[Status]] = {
    Status.QUEUED: (_WAITING - {Status.QUEUED}) | {Status.DISPATCHED} | _ENDED_WITHOUT_A_RUN,
    Status.WAITING_ON_DEPS: (_WAITING - {Status.WAITING_ON_DEPS}) | _ENDED_WITHOUT_A_RUN,
    Status.WAITING_ON_LOCKS: (_WAITING - {Status.WAITING_ON_LOCKS}) | _ENDED_WITHOUT_A_RUN,
    Status.DISPATCHED: frozenset({Status.QUEUED, Status.RUNNING}) | _ENDED_BY_A_RUN,
    Status.RUNNING: _ENDED_BY_A_RUN,
    Status.COMPLETED: _REWOUND,
    Status.FAILED: _REWOUND,
    Status.SKIPPED: _REWOUND,
    Status.CANCELLED: _REWOUND,
    Status.BLOCKED_BY_DEPENDENCY: _REWOUND,
    Status.UNREADABLE: _ENDED_BY_A_RUN,
}

TERMINAL = frozenset(status for status, following in TRANSITIONS.items() if following == _REWOUND)
ACTIVE = frozenset(Status) - TERMINAL
WAITING = _WAITING
STORED = frozenset(Status) - {Status.UNREADABLE}
STARTED = ACTIVE - WAITING - {Status.UNREADABLE}
"""Claimed or running: jobs in these statuses draw from pools and hold locks."""


def parse_status(text: str) -> Status:
    """Return the status that is stored as this text."""
    return _BY_TEXT.get(text, Status.UNREADABLE)


_BY_TEXT = {status.value: status for status in Status}


class IllegalTransition(Exception):
    """Attempt to make a transition that the table does not allow: a defect in Rota, never a user error."""


def advance(status: Status, to: Status, *, rewind: bool = False) -> Status:
    """Return the new status if the table allows the transition. Only rewind leaves a terminal status."""
    if to not in TRANSITIONS[status] or (status in TERMINAL and not rewind):
        raise IllegalTransition(f"{status} -> {to}")
    return to
