"""Reads the graph of jobs: a few statements for any number of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from rota.core.after import AfterPolicy
from rota.core.artifact import Need, decode_artifact
from rota.core.graph import SHOWN, After, Caption, Link, Needed, Vertex
from rota.core.lock import Lock, LockMode
from rota.core.status import Status
from rota.ids import JobId
from rota.store.artifact import ArtifactRecords

_STATUSES = {status.value: status for status in Status}


class Legend(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to say of a job beside its status."""

    command: tuple[str, ...]
    reason: str | None
    caption: Caption


class GraphRecords(ArtifactRecords):
    def vertices(self, *, with_ended: bool, limit: int) -> list[Vertex]:
        """What is active, then what is blocked or, if asked for, has ended."""
        found = self._db.rows("active_vertices", limit=limit)
        further = "ended_vertices" if with_ended else "blocked_vertices"
        if len(found) < limit:
            found += self._db.rows(further, limit=limit - len(found))
        return [_vertex(*row) for row in found]

    def last_vertex(self, job: JobId) -> Vertex | None:
        """The last job of its chain."""
        rows = self._db.rows("chains", ids=[job])
        return _vertex(rows[0][2], rows[0][1], rows[0][3]) if rows else None

    def links_of(self, vertices: Collection[Vertex]) -> Mapping[JobId, list[Link]]:
        """What each hangs on: the jobs it comes after, then what it needs, in the order in which they were named."""
        if not vertices:
            return {}
        links: dict[JobId, list[Link]] = {vertex.job: [] for vertex in vertices}
        for job, predecessor, policy, *last in self._db.rows("edges_out", ids=list(links)):
            to = None if last[0] is None else _vertex(*last)
            links[job].append(After(policy=AfterPolicy(policy), predecessor=JobId(predecessor), to=to))
        needs = self._needed(sorted({vertex.chain for vertex in vertices}))
        for vertex in vertices if needs else ():
            links[vertex.job] += needs.get(vertex.chain, ())
        return {job: found for job, found in links.items() if found}

    def _needed(self, chains: Sequence[JobId]) -> Mapping[JobId, list[Needed]]:
        rows = self._db.rows("needs_of", chains=chains)
        makers: dict[int, list[Vertex]] = {}
        artifacts = sorted({row[1] for row in rows})
        for artifact, *last in self._db.rows("last_makers", artifacts=artifacts) if artifacts else ():
            makers.setdefault(artifact, []).append(_vertex(*last))
        needed: dict[JobId, list[Needed]] = {}
        for chain, artifact, scope, name, put_at, _ in rows:
            need = Need(artifact=decode_artifact(name), scope=scope, is_declared=put_at is not None)
            others = [Needed(need=need, to=maker) for maker in makers.get(artifact, ()) if maker.chain != chain]
            needed.setdefault(chain, []).extend(others or [Needed(need=need, to=None)])
        return needed

    def consumers_of(self, vertices: Collection[Vertex], *, with_ended: bool, limit: int) -> list[Vertex]:
        """The jobs that hang on these; those that were tried again only with all that has ended."""
        if not vertices:
            return []
        statuses = [status.value for status in (Status if with_ended else SHOWN)]
        rows = self._db.rows(
            "consumers", chains=sorted({vertex.chain for vertex in vertices}), statuses=statuses,
            with_retried=int(with_ended), limit=limit,
        )  # fmt: skip
        return [_vertex(*row) for row in rows]

    def legends(self, vertices: Collection[Vertex]) -> Mapping[JobId, Legend]:
        jobs = [vertex.job for vertex in vertices]
        if not jobs:
            return {}
        locks: dict[int, list[Lock]] = {}
        for job, key, mode, _ in self._db.rows("locks_of", ids=jobs):
            locks.setdefault(job, []).append(Lock(key=key, mode=LockMode(mode)))
        pins = self.pins_of(sorted({vertex.chain for vertex in vertices}))
        chains = {vertex.job: vertex.chain for vertex in vertices}
        found = {}
        for job, reason, command, name, type_, target in self._db.rows("captions", ids=jobs):
            pin = pins.get(chains[job])
            caption = Caption(
                scope=type_, plan=name, target=target, locks=tuple(locks.get(job, ())),
                pinned_head=None if pin is None else pin.head,
            )  # fmt: skip
            found[JobId(job)] = Legend(command=_argv(command), reason=reason, caption=caption)
        return found


_decode_argv = msgspec.json.Decoder(tuple[str, ...]).decode


def _argv(text: str) -> tuple[str, ...]:
    """A record that cannot be read is shown without that part."""
    try:
        return _decode_argv(text)
    except msgspec.DecodeError:
        return ()


def _vertex(job: Any, chain: Any, status: str) -> Vertex:
    return Vertex(job=job, chain=chain, status=_STATUSES[status])
