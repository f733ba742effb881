"""Unique keys: a chain holds its key exclusively from submit until it has ended, including its backoff.

A submit with a held key returns the holder. A chain that continues after its end, by a retry or a rewind, must acquire
its key again; if another chain holds the key, the retry or rewind is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from rota.errors import Conflict, InvalidInput, error_path
from rota.ids import JobId, format_job_id
from rota.naming import KEY_RULE, is_key


class KeyHolder(msgspec.Struct, frozen=True, kw_only=True):
    """Holder of a unique key."""

    job: JobId
    chain: JobId


def check_unique_key(key: str | None) -> None:
    if key is not None and not is_key(key):
        raise InvalidInput(f"not a usable unique key: {key!r}; use {KEY_RULE}").at_path(".unique")


def collect_keys(requested: Sequence[str | None]) -> list[str]:
    """Return the keys that the jobs of one submit request; each key may occur only once."""
    positions: dict[str, int] = {}
    for n, key in enumerate(requested):
        if key is None:
            continue
        with error_path(f"[{n}]"):
            check_unique_key(key)
            if key in positions:
                conflict = f"jobs {positions[key] + 1} and {n + 1} of the submit have the same unique key, {key!r}"
                raise InvalidInput(f"{conflict}; use a different key for each job").at_path(".unique")
        positions[key] = n
    return list(positions)


def refuse_held_keys(
    jobs: Iterable[tuple[JobId, str | None]],
    holders: Mapping[str, KeyHolder],
    chains: Collection[JobId],
    *,
    action: str,
) -> None:
    """Raise `Conflict` if a chain that is to continue cannot have its key. `jobs` are the last jobs of these chains,
    each with its key."""
    jobs_by_key: dict[str, JobId] = {}
    for job, key in jobs:
        if key is None:
            continue
        if key in jobs_by_key:
            raise Conflict(
                f"cannot {action}: {format_job_id(jobs_by_key[key])} and {format_job_id(job)} have the same unique key,"
                f" {key!r}, and only one of them can be active; submit the work again instead"
            )
        jobs_by_key[key] = job
        holder = holders.get(key)
        if holder is not None and holder.chain not in chains:
            name = format_job_id(holder.job)
            raise Conflict(
                f"cannot {action} {format_job_id(job)}: its unique key {key!r} is held by {name}; "
                f"run `rota wait {name}` or `rota cancel {name}` first"
            )
