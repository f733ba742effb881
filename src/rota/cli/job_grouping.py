"""Jobs grouped under headings: by target, by flow, by group, or by each limited pool that they draw from.

A heading counts its jobs, and the last job of a list can belong under the first heading. Therefore the whole list is
read before anything is printed. The rendered jobs are stored in a temporary file; memory holds the counts of the groups
and a file offset for each job.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Sequence

from rota.cli.field import MARKS, mark
from rota.cli.terminal import OutputError
from rota.errors import escape_unprintable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Any

    from rota.client.requests import Json

KEYS = ("target", "flow", "pool", "group")


class ListGroup:
    """Jobs under one heading: the number of jobs with each mark, and the file offsets of the rendered jobs."""

    def __init__(self, key: str | None) -> None:
        self.key = key
        self.marks = dict.fromkeys(MARKS, 0)
        self.offsets = array("q")

    def counts(self) -> dict[str, int]:
        """Return the numbers of `running`, `ready`, `not_ready` and `ended` jobs."""
        return {meaning.replace(" ", "_"): self.marks[sign] for sign, meaning in MARKS.items()}


class JobGrouping:
    """Groups in the queue order of their first jobs; the jobs without a group come last."""

    def __init__(self, key_name: str, pools: Json | None, file: IO[bytes]) -> None:
        self.key_name = key_name
        self._pools = pools or {}
        self._groups: dict[str | None, ListGroup] = {}
        self._file = file
        self._end = 0

    def add(self, job: Json, rendered: Any) -> None:
        """Add a job with its rendered form, any JSON value."""
        sign = mark(job)
        for key in _group_keys(job, self.key_name, self._pools):
            group = self._groups.setdefault(key, ListGroup(key))
            group.marks[sign] += 1
            group.offsets.append(self._end)
        try:
            self._end += self._file.write(json.dumps(rendered).encode() + b"\n")
        except OSError as error:
            text = f"--by cannot write its temporary file: {error.strerror}; set TMPDIR to a directory with free space"
            raise OutputError(text) from None

    def groups(self) -> list[ListGroup]:
        return sorted(self._groups.values(), key=lambda group: group.key is None)

    def rendered_jobs(self, group: ListGroup) -> Iterator[Any]:
        """Read the rendered jobs of a group in the order in which they were added."""
        for offset in group.offsets:
            self._file.seek(offset)
            yield json.loads(self._file.readline())

    def heading(self, group: ListGroup) -> str:
        counts = group.counts()
        parts = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count)
        number = sum(counts.values())
        jobs = f"{number} job{'s' * (number != 1)}"
        return f"{_group_name(self.key_name, group.key, self._pools)}: {jobs} ({parts})"


def _group_keys(job: Json, by: str, pools: Json) -> Sequence[str | None]:
    if by != "pool":
        return [job.get(by)]
    return [name for name in job.get("pools") or () if pool_size(name, pools) >= 0] or [None]


def pool_size(pool: str, pools: Json) -> int:
    """Return the size of a pool. The response lists only pools in use; the others have the default of their kind."""
    if pool in pools["pools"]:
        size: int = pools["pools"][pool]["size"]
    else:
        size = pools.get("defaults", {}).get(pool.partition("/")[0], -1)
    return size


def _group_name(by: str, key: str | None, pools: Json) -> str:
    if by != "pool":
        return f"(no {by})" if key is None else f"{by} {escape_unprintable(key)}"
    if key is None:
        return "(no pool with a limit)"
    used = pools["pools"].get(key, {}).get("used", 0)
    return f"pool {escape_unprintable(key)} {used}/{pool_size(key, pools)}"
