"""Stores artifacts and pinned heads, and marks the jobs that a change of them concerns.

Whether a thing is there is looked up outside, by the probe; the store knows who needs it, who makes it and what
their chains have come to, and, of what jobs put themselves, that it was put.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import msgspec

from rota.core.artifact import Artifact, Belongs, MissingProducer, Need, Producer, decode_artifact
from rota.core.event import Event
from rota.core.fact import Head
from rota.core.job import Spec
from rota.core.pinned_head import Pin, PinnedHead
from rota.core.run import amend
from rota.core.status import Status
from rota.ids import JobId, RunId
from rota.store.database import Database
from rota.store.event import Emitting
from rota.store.moment import from_stored, to_stored


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """An artifact as the store names it."""

    id: int
    scope: str
    artifact: Artifact

    @property
    def need(self) -> Need:
        return Need(artifact=self.artifact, scope=self.scope)


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """What a job has said of artifacts and heads."""

    needs: tuple[str, ...] = ()
    produces: tuple[str, ...] = ()
    pinned_head: PinnedHead | None = None


class Put(msgspec.Struct, frozen=True, kw_only=True):
    """An artifact that somebody has declared to be there."""

    artifact: str
    scope: str
    payload: str | None
    at: datetime
    job: JobId | None


def scope_of(artifact: Artifact, repository: str | None) -> str:
    return "" if artifact.kind.belongs is Belongs.HOME else repository or ""


class ArtifactRecords:
    _db: Database

    def needs_of(self, chains: Sequence[int]) -> Mapping[int, tuple[Need, ...]]:
        """What each of these chains needs, in order, with what the producers of it have come to."""
        rows = self._db.rows("needs_of", chains=list(chains)) if chains else ()
        makers = self._makers(sorted({row[1] for row in rows}))
        named = {job for row in rows if (job := decode_artifact(row[3]).job) is not None}
        completed = self._completed(sorted(named))
        needs: dict[int, tuple[Need, ...]] = {}
        for chain, artifact, scope, name, put_at, missing_producer in rows:
            producers = tuple(producer for maker, producer in makers.get(artifact, ()) if maker != chain)
            parsed = decode_artifact(name)
            is_done = parsed.job in completed
            need = Need(
                artifact=parsed, scope=scope, is_declared=put_at is not None or is_done, producers=producers,
                missing_producer=MissingProducer(missing_producer),
            )  # fmt: skip
            needs[chain] = (*needs.get(chain, ()), need)
        return needs

    def _completed(self, jobs: Sequence[JobId]) -> set[JobId]:
        """Those of them whose chain has come to COMPLETED."""
        rows = self._db.rows("chains", ids=list(jobs)) if jobs else ()
        return {JobId(job) for job, _chain, _last, status, *_ in rows if status == Status.COMPLETED}

    def _makers(self, artifacts: Sequence[int]) -> Mapping[int, list[tuple[int, Producer]]]:
        """By artifact the chains that make it."""
        makers: dict[int, list[tuple[int, Producer]]] = {}
        for artifact, chain, is_rewound, status in (
            self._db.rows("producers_of", artifacts=list(artifacts)) if artifacts else ()
        ):
            if status in Status.__members__:
                producer = Producer(status=Status(status), is_rewound=bool(is_rewound))
                makers.setdefault(artifact, []).append((chain, producer))
        return makers

    def pins_of(self, chains: Sequence[int]) -> Mapping[int, Pin]:
        return {
            chain: Pin(repository=repository, head=PinnedHead(branch=branch, oid=oid))
            for chain, repository, branch, oid in (self._db.rows("pins_of", chains=list(chains)) if chains else ())
        }

    def named_by(self, chains: Sequence[int]) -> Mapping[int, Named]:
        """What these chains have said that they need, make and are pinned to; one that named nothing is not here."""
        named: dict[int, Named] = {}
        for chain, what, _, name, oid in sorted(
            self._db.rows("named_by", chains=list(chains)), key=lambda row: row[:3]
        ):
            known = named.get(chain, Named())
            match what:
                case "need":
                    named[chain] = msgspec.structs.replace(known, needs=(*known.needs, name))
                case "product":
                    named[chain] = msgspec.structs.replace(known, produces=(*known.produces, name))
                case _:
                    named[chain] = msgspec.structs.replace(known, pinned_head=PinnedHead(branch=name, oid=oid))
        return named

    def is_needed(self, artifacts: Collection[tuple[str, str]]) -> bool:
        """Whether a job that waits needs one of these, given by scope and name."""
        rows = self._db.rows("needed", names=sorted({name for _, name in artifacts}))
        return any((scope, name) in artifacts for scope, name in rows)

    def makers_of(self, artifacts: Collection[tuple[str, str]]) -> list[JobId]:
        """The chains that make one of these and have not ended."""
        return list(dict.fromkeys(maker for makers in self._active_makers(artifacts).values() for maker in makers))

    def _active_makers(self, artifacts: Collection[tuple[str, str]]) -> Mapping[tuple[str, str], list[JobId]]:
        makers: dict[tuple[str, str], list[JobId]] = {}
        names = sorted({name for _, name in artifacts})
        for scope, name, chain in self._db.rows("makers_of", names=names) if names else ():
            if (scope, name) in artifacts:
                makers.setdefault((scope, name), []).append(JobId(chain))
        return makers

    def waits_for(
        self, jobs: Mapping[JobId, JobId], made: Mapping[tuple[str, str], Sequence[JobId]]
    ) -> Mapping[JobId, list[JobId]]:
        """What these chains, given each with its last job, wait for: other chains, and the makers that are to come."""
        before: dict[JobId, list[JobId]] = {chain: [] for chain in jobs}
        for chain, predecessor in self._db.rows("open_edges_of", ids=list(jobs.values())) if jobs else ():
            before[JobId(chain)].append(JobId(predecessor))
        needed = {
            chain: [(need.scope, str(need.artifact)) for need in needs]
            for chain, needs in self.needs_of(list(jobs)).items()
        }
        active = self._active_makers({key for keys in needed.values() for key in keys})
        for chain, keys in needed.items():
            makers = (maker for key in keys for maker in (*active.get(key, ()), *made.get(key, ())))
            before[JobId(chain)] += [maker for maker in makers if maker != chain]
        return before

    def watched_artifacts(self) -> list[Made]:
        """What the jobs that wait need."""
        return [
            Made(id=artifact, scope=scope, artifact=decode_artifact(name))
            for artifact, scope, name in self._db.rows("watched_artifacts")
        ]

    def watched_heads(self) -> list[Head]:
        return list(dict.fromkeys(Head(repository, branch) for repository, branch in self._db.rows("watched_heads")))

    def artifacts_put(self, *, behind: tuple[str, str] = ("", ""), limit: int = 1000) -> list[Put]:
        """By name and scope, behind these, without the payloads."""
        return self._puts("list_put", name=behind[0], scope=behind[1], limit=limit)

    def artifact_put(self, artifact: Artifact, repository: str | None) -> Put | None:
        """What was put under that name; none when nothing was."""
        number = self._db.rows("find_artifact", scope=scope_of(artifact, repository), name=str(artifact))
        return next(iter(self._puts("put_as", artifact=number[0][0])), None) if number else None

    def _puts(self, statement: str, **values: object) -> list[Put]:
        return [
            Put(
                artifact=name, scope=scope, payload=payload, at=from_stored(at), job=None if job is None else JobId(job)
            )
            for scope, name, payload, at, job in self._db.rows(statement, **values)
        ]


class Crafting(ArtifactRecords, Emitting):
    """The part of the session that changes artifacts."""

    def number_of(self, artifact: Artifact, repository: str | None) -> int:
        """The number under which it is stored, once for each that it can belong to."""
        scope, name = scope_of(artifact, repository), str(artifact)
        place = ("artifact", scope, name)
        if place not in self._known:
            values = {"scope": scope, "name": name}
            rows = self._db.rows("find_artifact", **values) or self._db.rows("add_artifact", **values)
            self._known[place] = rows[0][0]
        return self._known[place]

    def add_needs(
        self, chain: JobId, spec: Spec, needs: Sequence[Artifact], missing_producer: MissingProducer
    ) -> None:  # fmt: skip
        """What a new job needs and is pinned to."""
        for n, need in enumerate(needs):
            number = self.number_of(need, spec.repository)
            self._db.run("add_need", chain=chain, sequence=n, artifact=number, missing_producer=missing_producer.value)
            if need.job is not None:
                self._add_patch(need.job, number)
        if spec.pinned_head is not None and spec.repository is not None:
            pin = msgspec.structs.asdict(spec.pinned_head)
            self._db.run("add_pin", chain=chain, repository=spec.repository, **pin)

    def _add_patch(self, job: JobId, artifact: int) -> None:
        """A job that is to leave a patch makes it, though it did not say so."""
        ((chain,),) = self._db.rows("chain_of", job=job)
        self.add_product(chain, artifact, sequence=None)

    def add_products(self, chain: JobId, spec: Spec, products: Sequence[Artifact]) -> None:
        for n, artifact in enumerate(products):
            self.add_product(chain, self.number_of(artifact, spec.repository), sequence=n)

    def add_product(self, chain: JobId, artifact: int, *, sequence: int | None) -> None:
        self._db.run("add_product", chain=chain, artifact=artifact, sequence=sequence)

    def stir_needing(self, artifacts: Sequence[int]) -> None:
        if artifacts:
            self._db.run("stir_needing", artifacts=list(artifacts))

    def stir_pinned(self, head: Head) -> None:
        self._db.run("stir_pinned", repository=head.repository, branch=head.branch)

    def numbers_named(self, names: Sequence[str]) -> list[int]:
        return [row[0] for row in self._db.rows("numbers_named", names=list(names))] if names else []

    def artifacts_in(self, repository: str) -> list[Made]:
        """Those of a repository that a job which waits needs."""
        return [
            Made(id=artifact, scope=repository, artifact=decode_artifact(name))
            for artifact, name in self._db.rows("artifacts_in", scope=repository)
        ]

    def made_by_jobs(self, jobs: Sequence[JobId]) -> Mapping[JobId, list[tuple[str, str]]]:
        """What each of these makes that is not there while it is made, by scope and name."""
        making: dict[JobId, list[tuple[str, str]]] = {}
        for job, scope, name in self._db.rows("made_by_jobs", ids=list(jobs)):
            if not decode_artifact(name).kind.counts_while_made:
                making.setdefault(JobId(job), []).append((scope, name))
        return making

    def made_by(self, chain: JobId) -> list[Made]:
        return [
            Made(id=artifact, scope=scope, artifact=decode_artifact(name))
            for artifact, scope, name in self._db.rows("made_by", chain=chain)
        ]

    def made_anew(self, chain: JobId) -> None:
        """The chain has ended again: from now on what is there counts."""
        self._db.run("made_anew", chain=chain)

    def put(self, artifact: int, payload: str | None, job: JobId | None, now: datetime) -> None:
        self._db.run("put", artifact=artifact, payload=payload, job=job, now=to_stored(now))

    def take_back_put(self, job: JobId) -> None:
        """What a job has put does not outlast its failure."""
        self.stir_needing([row[0] for row in self._db.rows("take_back_put", job=job)])

    def take_back(self, artifact: int) -> Put | None:
        """What was put by that number; none when nothing was."""
        taken = next(iter(self._puts("put_as", artifact=artifact)), None)
        if taken is not None:
            self._db.run("put", artifact=artifact, payload=None, job=None, now=None)
            self.stir_needing([artifact])
        return taken

    def note_put(self, run: RunId, artifact: str) -> None:
        """The run says what it has put, each thing once."""
        ((text,),) = self._db.rows("artifacts_of_run", run=run)
        known = msgspec.json.decode(text, type=list[str]) if text else []
        if artifact not in known:
            amended = amend(artifacts=msgspec.json.encode([*known, artifact]).decode())
            self._db.run("set_artifacts_of_run", run=run, **amended)

    def emit_put(
        self, artifact: str, job: JobId | None, run: RunId | None, now: datetime, actor: str | None, *,
        is_back: bool = False,
    ) -> None:  # fmt: skip
        kind = "artifact.removed" if is_back else "artifact.put"
        data = {"artifact": artifact}
        event = Event(kind=kind, at=to_stored(now), cause="artifact", actor=actor, job=job, run=run, data=data)
        self.emit(event)
