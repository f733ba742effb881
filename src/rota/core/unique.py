"""Unique: a key that one chain has to itself from submit until it has ended, backoff included.

Who submits with a key that is taken is told which job has it. A chain that has ended and is to go on, by a retry or a
rewind, has to have its key back: where another has it now, that is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from rota.errors import Conflict, InvalidInput, within
from rota.ids import JobId, show_job


class Active(msgspec.Struct, frozen=True, kw_only=True):
    """Who has a key."""

    job: JobId
    chain: JobId


def check_key(key: str | None) -> None:
    if key is not None and (not key or "\x00" in key or len(key) > 200):
        raise InvalidInput(f"not a usable unique key: {key!r}; use 1 to 200 characters").under(".unique")


def keys_of(wanted: Sequence[str | None]) -> list[str]:
    """The keys that the jobs of one submit ask for, each asked for once."""
    places: dict[str, int] = {}
    for n, key in enumerate(wanted):
        if key is None:
            continue
        with within(f"[{n}]"):
            check_key(key)
            if key in places:
                said = f"jobs {places[key] + 1} and {n + 1} of the submit have one unique key, {key!r}"
                raise InvalidInput(f"{said}; only one of them could run").under(".unique")
        places[key] = n
    return list(places)


def refuse_taken(
    jobs: Iterable[tuple[JobId, str | None]], active: Mapping[str, Active], chains: Collection[JobId], *, verb: str
) -> None:
    """`jobs` are the last of the chains that are to go on, each with its key."""
    seen: dict[str, JobId] = {}
    for job, key in jobs:
        if key is None:
            continue
        if key in seen:
            raise Conflict(
                f"cannot {verb}: {show_job(seen[key])} and {show_job(job)} have one unique key, {key!r}, "
                "and only one of them can be active; submit the work anew instead"
            )
        seen[key] = job
        other = active.get(key)
        if other is not None and other.chain not in chains:
            name = show_job(other.job)
            raise Conflict(
                f"cannot {verb} {show_job(job)}: its unique key {key!r} is {name}'s now; "
                f"`rota wait {name}` for its end, or `rota cancel {name}` first"
            )
