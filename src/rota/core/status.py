"""Statuses: the table of legal changes, and the one door through which a status changes.

    QUEUED ⇄ WAITING_ON_DEPS ⇄ WAITING_ON_LOCKS      wait at a gate
       │
       ▼
    DISPATCHED ─▶ RUNNING ─▶ COMPLETED | FAILED | SKIPPED | CANCELLED
       │                        (a waiting job can also end: CANCELLED, SKIPPED,
       └─▶ QUEUED               BLOCKED_BY_DEPENDENCY, or FAILED when it cannot be started)

DISPATCHED is internal: claimed, the child not yet confirmed; every surface shows RUNNING.
Upholds DEC-006 (one vocabulary) and the rule that a terminal job leaves its state only by rewind.
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

    @property
    def shown(self) -> Status:
        """As every surface names it: DISPATCHED is internal."""
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
}

TERMINAL = frozenset(status for status, following in TRANSITIONS.items() if following == _REWOUND)
ACTIVE = frozenset(Status) - TERMINAL
WAITING = _WAITING
STARTED = ACTIVE - WAITING
"""Claimed or running: what draws from pools and holds locks."""


class IllegalTransition(Exception):
    """A status was asked to change in a way the table does not have: a defect, never a user's doing."""


def advance(status: Status, to: Status, *, rewind: bool = False) -> Status:
    """The new status, if the table allows it; a terminal status is left only by rewind."""
    if to not in TRANSITIONS[status] or (status in TERMINAL and not rewind):
        raise IllegalTransition(f"{status} -> {to}")
    return to
