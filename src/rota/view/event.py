"""Events, read from the table: what is wanted of them, and a piece at a time."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rota.core.event import Entry, Wanted, kinds_named
from rota.errors import within
from rota.ids import JobId
from rota.store.session import Reader
from rota.view.job import find


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    entries: list[Entry]
    position: int
    """Everything up to this number has been looked at."""
    is_end: bool
    """There was no more at this moment."""
    complete_from: int | None
    """Set where some of what was asked for is not there any more: what is there from this number on is complete."""


def wanted_of(
    reader: Reader, *, jobs: Sequence[JobId] = (), group: str | None = None, kinds: Sequence[str] = (),
    job_type: str | None = None, flow: str | None = None,
) -> Wanted:  # fmt: skip
    """A job stands for its chain: who watches it wants to know how it gets on when it is tried again."""
    with within(".kind"):
        named = kinds_named(kinds)
    chains = set()
    for n, job in enumerate(jobs):
        with within(f".job[{n}]"):
            chains.add(find(reader, job).chain)
    with within(".group"):
        members = None if group is None else reader.group_called(group).id
    return Wanted(kinds=named, chains=frozenset(chains), group=members, type=job_type, flow=flow)


def piece(reader: Reader, wanted: Wanted, *, since: int, limit: int, complete_from: int = 0) -> Piece:
    """What happened after the number `since`. It has been said that all from `complete_from` on is there."""
    head = reader.head()
    if since > head:  # of another store, or of one that was set back: nobody knows what happened in between
        return Piece(entries=[], position=head, is_end=True, complete_from=head + 1)
    entries, position = reader.entries(wanted, since=since, limit=limit)
    return Piece(
        entries=entries,
        position=position,
        is_end=position >= head,
        complete_from=_gap(reader, wanted, max(since + 1, complete_from)),
    )


def _gap(reader: Reader, wanted: Wanted, complete_from: int) -> int | None:
    """A job's events go with the job: as long as it is there, so are they."""
    first = reader.events_from()
    if first <= complete_from or (wanted.chains and reader.has_jobs(wanted.chains) == wanted.chains):
        return None
    return first
