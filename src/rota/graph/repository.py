"""Reads of the job graph: a fixed number of statements, however many jobs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from rota.db.artifacts import ArtifactRecords
from rota.db.database import Database
from rota.db.decoding import parse_dependency_policy, parse_lock_mode
from rota.graph.model import DEFAULT_STATUSES, ArtifactLink, Caption, DependencyLink, Link, Vertex
from rota.ids import JobId
from rota.kernel.artifacts import ArtifactNeed, decode_artifact
from rota.kernel.locks import Lock
from rota.kernel.status import Status, parse_status


class VertexDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Details of a job besides its status."""

    command: tuple[str, ...]
    reason: str | None
    caption: Caption


class GraphRecords:
    def __init__(self, database: Database, artifacts: ArtifactRecords) -> None:
        self._db = database
        self._artifacts = artifacts

    def vertices(self, *, with_ended: bool, limit: int) -> list[Vertex]:
        """Return the active jobs, then the blocked ones or, with `with_ended`, all ended ones."""
        rows = self._db.rows("active_vertices", limit=limit)
        statement = "ended_vertices" if with_ended else "blocked_vertices"
        if len(rows) < limit:
            rows += self._db.rows(statement, limit=limit - len(rows))
        return [_vertex_from_row(*row) for row in rows]

    def last_vertex(self, job: JobId) -> Vertex | None:
        """Return the last job of the chain of a job."""
        rows = self._db.rows("chain_states", ids=[job])
        return _vertex_from_row(rows[0][2], rows[0][1], rows[0][3]) if rows else None

    def links_of(self, vertices: Collection[Vertex]) -> Mapping[JobId, list[Link]]:
        """Return the links of each job: its dependencies, then its needs, in the order in which they were declared."""
        if not vertices:
            return {}
        links: dict[JobId, list[Link]] = {vertex.job: [] for vertex in vertices}
        for job, predecessor, policy, *last in self._db.rows("predecessor_edges", ids=list(links)):
            target = None if last[0] is None else _vertex_from_row(*last)
            links[job].append(
                DependencyLink(policy=parse_dependency_policy(policy), predecessor=JobId(predecessor), target=target)
            )
        needs = self._artifact_links(sorted({vertex.chain for vertex in vertices}))
        for vertex in vertices if needs else ():
            links[vertex.job] += needs.get(vertex.chain, ())
        return {job: job_links for job, job_links in links.items() if job_links}

    def _artifact_links(self, chains: Sequence[JobId]) -> Mapping[JobId, list[ArtifactLink]]:
        rows = self._db.rows("needs_of", chains=chains)
        producers: dict[int, list[Vertex]] = {}
        artifacts = sorted({row[1] for row in rows})
        for artifact, *last in self._db.rows("last_producers", artifacts=artifacts) if artifacts else ():
            producers.setdefault(artifact, []).append(_vertex_from_row(*last))
        needed: dict[JobId, list[ArtifactLink]] = {}
        for chain, artifact, scope, name, declared_at, _ in rows:
            need = ArtifactNeed(artifact=decode_artifact(name), scope=scope, is_declared=declared_at is not None)
            others = [
                ArtifactLink(need=need, target=producer)
                for producer in producers.get(artifact, ())
                if producer.chain != chain
            ]
            needed.setdefault(chain, []).extend(others or [ArtifactLink(need=need, target=None)])
        return needed

    def consumers_of(self, vertices: Collection[Vertex], *, with_ended: bool, limit: int) -> list[Vertex]:
        """Return the jobs that depend on these. Retried jobs are included only with `with_ended`."""
        if not vertices:
            return []
        hidden = [status.value for status in Status if not with_ended and status not in DEFAULT_STATUSES]
        rows = self._db.rows(
            "consumers",
            chains=sorted({vertex.chain for vertex in vertices}),
            hidden=hidden,
            with_retried=int(with_ended),
            limit=limit,
        )
        return [_vertex_from_row(*row) for row in rows]

    def details(self, vertices: Collection[Vertex]) -> Mapping[JobId, VertexDetails]:
        jobs = [vertex.job for vertex in vertices]
        if not jobs:
            return {}
        locks: dict[int, list[Lock]] = {}
        for job, key, mode, _ in self._db.rows("locks_of", ids=jobs):
            locks.setdefault(job, []).append(Lock(key=key, mode=parse_lock_mode(mode)))
        pins = self._artifacts.pins_of(sorted({vertex.chain for vertex in vertices}))
        chains = {vertex.job: vertex.chain for vertex in vertices}
        details = {}
        for job, reason, command, name, type_, target in self._db.rows("vertex_details", ids=jobs):
            pin = pins.get(chains[job])
            caption = Caption(
                scope=type_,
                plan=name,
                target=target,
                locks=tuple(locks.get(job, ())),
                pinned_head=None if pin is None else pin.head,
            )
            details[JobId(job)] = VertexDetails(command=_decode_argv(command), reason=reason, caption=caption)
        return details


_decoder = msgspec.json.Decoder(tuple[str, ...])


def _decode_argv(text: str) -> tuple[str, ...]:
    """Return the arguments of a stored command, or none if it is unreadable."""
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, TypeError):
        return ()


def _vertex_from_row(job: Any, chain: Any, status: str) -> Vertex:
    return Vertex(job=job, chain=chain, status=parse_status(status))
