"""Jobs under headings: by target, by flow, by group, or by each pool with a limit that they draw from. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rota.cli.field import MARKS, mark
from rota.cli.table import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.ask import Json

    Groups = list[tuple[str | None, list[Json]]]

KEYS = ("target", "flow", "pool", "group")


def groups(jobs: Sequence[Json], by: str, pools: Json | None = None) -> Groups:
    """In the order in which their first jobs stand in the queue; jobs that belong to none come last."""
    found: dict[str | None, list[Json]] = {}
    for job in jobs:
        for key in _keys(job, by, pools or {}):
            found.setdefault(key, []).append(job)
    return sorted(found.items(), key=lambda group: group[0] is None)


def _keys(job: Json, by: str, pools: Json) -> Sequence[str | None]:
    if by != "pool":
        return [job.get(by)]
    return [name for name in job.get("pools") or () if size_of(name, pools) >= 0] or [None]


def size_of(pool: str, pools: Json) -> int:
    """Of a pool that nothing is ready for or uses just now the answer has only what holds for each of its kind."""
    if pool in pools["pools"]:
        size: int = pools["pools"][pool]["size"]
    else:
        size = pools.get("each", {}).get(pool.partition("/")[0], -1)
    return size


def counts(jobs: Sequence[Json]) -> dict[str, int]:
    """How many are `running`, `ready`, `not_ready`, `ended`."""
    marks = [mark(job) for job in jobs]
    return {meaning.replace(" ", "_"): marks.count(sign) for sign, meaning in MARKS.items()}


def heading(by: str, key: str | None, jobs: Sequence[Json], pools: Json | None = None) -> str:
    parts = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts(jobs).items() if count)
    number = f"{len(jobs)} job{'s' * (len(jobs) != 1)}"
    return f"{_name(by, key, pools or {})}: {number} ({parts})"


def _name(by: str, key: str | None, pools: Json) -> str:
    if by != "pool":
        return f"(no {by})" if key is None else f"{by} {printable(key)}"
    if key is None:
        return "(no pool with a limit)"
    used = pools["pools"].get(key, {}).get("used", 0)
    return f"pool {printable(key)} {used}/{size_of(key, pools)}"
