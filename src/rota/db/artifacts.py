"""Storage of artifacts and pinned heads, and wake-ups for the jobs that a change of them affects.

The probe reads whether an artifact exists outside of Rota. The store records which chains need and produce it, the
status of these chains, and, for artifacts that a job or a user put, that they were put.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime

import msgspec

from rota.db.database import Database
from rota.db.decoding import decode_or_default, from_micros, to_micros
from rota.db.events import Events
from rota.db.ids import Ids
from rota.errors import InvalidInput
from rota.ids import JobId, RunId
from rota.kernel.artifacts import (
    Artifact,
    ArtifactNeed,
    ArtifactScope,
    MissingProducer,
    Pin,
    PinnedHead,
    Producer,
    decode_artifact,
)
from rota.kernel.events import Event
from rota.kernel.facts import BranchHead
from rota.kernel.job import Spec
from rota.kernel.run import amend
from rota.kernel.status import Status, parse_status


class ArtifactRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Artifact with its id and scope in the store."""

    id: int
    scope: str
    artifact: Artifact

    @property
    def need(self) -> ArtifactNeed:
        return ArtifactNeed(artifact=self.artifact, scope=self.scope)


class JobArtifacts(msgspec.Struct, frozen=True, kw_only=True):
    """Artifacts and pinned head that a job declared."""

    needs: tuple[str, ...] = ()
    produces: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """Declared products that did not exist after the success of the job."""
    pinned_head: PinnedHead | None = None


class PutArtifact(msgspec.Struct, frozen=True, kw_only=True):
    """Artifact that a job or a user declared to exist."""

    artifact: str
    scope: str
    payload: str | None
    at: datetime
    job: JobId | None


_MISSING_PRODUCERS = {policy.value: policy for policy in MissingProducer}


def artifact_scope(artifact: Artifact, repository: str | None) -> str:
    return "" if artifact.definition.scope is ArtifactScope.HOME else repository or ""


class ArtifactRecords:
    def __init__(self, database: Database) -> None:
        self._db = database

    def producers_by_name(self, names: Sequence[str]) -> Mapping[str, list[JobId]]:
        """Return the chains that produce an artifact with one of these names."""
        producers: dict[str, list[JobId]] = {}
        for name, chain in self._db.rows("producers_by_name", names=list(names)) if names else ():
            producers.setdefault(name, []).append(JobId(chain))
        return producers

    def rewound(self) -> list[Artifact]:
        """Return the products of rewound chains that no producer has started to make again. Existing ones are stale."""
        artifacts = []
        for (name,) in self._db.rows("rewound_products"):
            with suppress(InvalidInput):  # an unreadable artifact belongs to no job
                artifacts.append(decode_artifact(name))
        return artifacts

    def needs_of(self, chains: Sequence[int]) -> Mapping[int, tuple[ArtifactNeed, ...]]:
        """Return the needs of each chain, in order, with the states of their producers."""
        rows = self._db.rows("needs_of", chains=list(chains)) if chains else ()
        states = self._producers_of(sorted({row[1] for row in rows}))
        named_jobs = {job for row in rows if (job := decode_artifact(row[3]).job) is not None}
        completed = self._completed_jobs(sorted(named_jobs))
        needs: dict[int, tuple[ArtifactNeed, ...]] = {}
        for chain, artifact, scope, name, declared_at, missing_producer in rows:
            producers = tuple(producer for other, producer in states.get(artifact, ()) if other != chain)
            parsed = decode_artifact(name)
            is_completed = parsed.job in completed
            need = ArtifactNeed(
                artifact=parsed,
                scope=scope,
                is_declared=declared_at is not None or is_completed,
                producers=producers,
                missing_producer=_MISSING_PRODUCERS.get(missing_producer, MissingProducer.BLOCK),
            )
            needs[chain] = (*needs.get(chain, ()), need)
        return needs

    def _completed_jobs(self, jobs: Sequence[JobId]) -> set[JobId]:
        """Return the jobs among these whose chain has completed."""
        rows = self._db.rows("chain_states", ids=list(jobs)) if jobs else ()
        return {JobId(job) for job, _chain, _last, status, *_ in rows if status == Status.COMPLETED}

    def _producers_of(self, artifacts: Sequence[int]) -> Mapping[int, list[tuple[int, Producer]]]:
        """Return the producing chains of each artifact."""
        producers: dict[int, list[tuple[int, Producer]]] = {}
        for artifact, chain, is_rewound, status in (
            self._db.rows("producer_states", artifacts=list(artifacts)) if artifacts else ()
        ):
            if parse_status(status) is not Status.UNREADABLE:
                producer = Producer(status=parse_status(status), is_rewound=bool(is_rewound))
                producers.setdefault(artifact, []).append((chain, producer))
        return producers

    def pins_of(self, chains: Sequence[int]) -> Mapping[int, Pin]:
        return {
            chain: Pin(repository=repository, head=PinnedHead(branch=branch, oid=oid))
            for chain, repository, branch, oid in (self._db.rows("pins_of", chains=list(chains)) if chains else ())
        }

    def of_chains(self, chains: Sequence[int]) -> Mapping[int, JobArtifacts]:
        """Return what each chain declared. A chain without artifacts and pinned head is missing from the result."""
        declared: dict[int, JobArtifacts] = {}
        for chain, role, _, name, note in sorted(
            self._db.rows("artifacts_of_chains", chains=list(chains)), key=lambda row: row[:3]
        ):
            old = declared.get(chain, JobArtifacts())
            match role:
                case "need":
                    declared[chain] = msgspec.structs.replace(old, needs=(*old.needs, name))
                case "product":
                    missing = (*old.missing, name) if note == "missing" else old.missing
                    declared[chain] = msgspec.structs.replace(old, produces=(*old.produces, name), missing=missing)
                case _:
                    declared[chain] = msgspec.structs.replace(old, pinned_head=PinnedHead(branch=name, oid=note))
        return declared

    def is_needed(self, artifacts: Collection[tuple[str, str]]) -> bool:
        """Return whether a waiting job needs one of these artifacts, given as scope and name."""
        rows = self._db.rows("needed_artifacts", names=sorted({name for _, name in artifacts}))
        return any((scope, name) in artifacts for scope, name in rows)

    def active_producers(self, artifacts: Collection[tuple[str, str]]) -> list[JobId]:
        """Return the unfinished chains that produce one of these artifacts."""
        return list(dict.fromkeys(chain for chains in self._active_producers(artifacts).values() for chain in chains))

    def _active_producers(self, artifacts: Collection[tuple[str, str]]) -> Mapping[tuple[str, str], list[JobId]]:
        producers: dict[tuple[str, str], list[JobId]] = {}
        names = sorted({name for _, name in artifacts})
        for scope, name, chain in self._db.rows("active_producers", names=names) if names else ():
            if (scope, name) in artifacts:
                producers.setdefault((scope, name), []).append(JobId(chain))
        return producers

    def unmet_predecessors(
        self, jobs: Mapping[JobId, JobId], new_producers: Mapping[tuple[str, str], Sequence[JobId]]
    ) -> Mapping[JobId, list[JobId]]:
        """Return the chains that each of these chains waits for: its unresolved edges, and the producers of its needs.
        `jobs` has the last job of each chain, and `new_producers` the producers that are about to be stored."""
        predecessors: dict[JobId, list[JobId]] = {chain: [] for chain in jobs}
        for chain, predecessor in self._db.rows("open_edges_of", ids=list(jobs.values())) if jobs else ():
            predecessors[JobId(chain)].append(JobId(predecessor))
        needed = {
            chain: [(need.scope, str(need.artifact)) for need in needs]
            for chain, needs in self.needs_of(list(jobs)).items()
        }
        active = self._active_producers({key for keys in needed.values() for key in keys})
        for chain, keys in needed.items():
            producers = (producer for key in keys for producer in (*active.get(key, ()), *new_producers.get(key, ())))
            predecessors[JobId(chain)] += [producer for producer in producers if producer != chain]
        return predecessors

    def watched(self) -> list[ArtifactRecord]:
        """Return the artifacts that waiting jobs need."""
        return [
            ArtifactRecord(id=artifact, scope=scope, artifact=decode_artifact(name))
            for artifact, scope, name in self._db.rows("watched_artifacts")
        ]

    def watched_heads(self) -> list[BranchHead]:
        return list(
            dict.fromkeys(BranchHead(repository, branch) for repository, branch in self._db.rows("watched_heads"))
        )

    def list_put(self, *, after: tuple[str, str] = ("", ""), limit: int = 1000) -> list[PutArtifact]:
        """Return put artifacts after `after`, by name and scope, without their payloads."""
        return self._read_put("list_put_artifacts", name=after[0], scope=after[1], limit=limit)

    def find_put(self, artifact: Artifact, repository: str | None) -> PutArtifact | None:
        """Return the put artifact with this name, or None."""
        rows = self._db.rows("find_artifact", scope=artifact_scope(artifact, repository), name=str(artifact))
        return next(iter(self._read_put("find_put_artifact", artifact=rows[0][0])), None) if rows else None

    def _read_put(self, statement: str, **values: object) -> list[PutArtifact]:
        return [
            PutArtifact(
                artifact=name, scope=scope, payload=payload, at=from_micros(at), job=None if job is None else JobId(job)
            )
            for scope, name, payload, at, job in self._db.rows(statement, **values)
        ]

    def ids_named(self, names: Sequence[str]) -> list[int]:
        return [row[0] for row in self._db.rows("artifact_ids_by_name", names=list(names))] if names else []

    def needed_in(self, repository: str) -> list[ArtifactRecord]:
        """Return the artifacts of a repository that waiting jobs need."""
        return [
            ArtifactRecord(id=artifact, scope=repository, artifact=decode_artifact(name))
            for artifact, name in self._db.rows("needed_artifacts_in", scope=repository)
        ]

    def products_of_jobs(self, jobs: Sequence[JobId]) -> Mapping[JobId, list[tuple[str, str]]]:
        """Return the products of each job that do not count while the job runs, by scope and name."""
        products: dict[JobId, list[tuple[str, str]]] = {}
        for job, scope, name in self._db.rows("products_of_jobs", ids=list(jobs)):
            if not decode_artifact(name).definition.counts_while_producing:
                products.setdefault(JobId(job), []).append((scope, name))
        return products

    def products_of(self, chain: JobId) -> list[ArtifactRecord]:
        return [
            ArtifactRecord(id=artifact, scope=scope, artifact=decode_artifact(name))
            for artifact, scope, name in self._db.rows("products_of", chain=chain)
        ]

    def unchecked_chains(self) -> set[tuple[JobId, JobId, Status]]:
        """Return the chains with unchecked products, each with its last job and the status of that job."""
        return {
            (JobId(chain), JobId(job), parse_status(text)) for chain, job, text in self._db.rows("unchecked_chains")
        }

    def unchecked_products(self, chain: JobId) -> list[tuple[int, ArtifactNeed]]:
        """Return the unchecked products of a chain, each with the id of its artifact."""
        return [
            (artifact, ArtifactNeed(artifact=decode_artifact(name), scope=scope, is_declared=declared_at is not None))
            for artifact, scope, name, declared_at in self._db.rows("unchecked_products", chain=chain)
        ]


class Artifacts(ArtifactRecords):
    def __init__(self, database: Database, ids: Ids, events: Events) -> None:
        super().__init__(database)
        self._ids = ids
        self._events = events

    def id_of(self, artifact: Artifact, repository: str | None) -> int:
        """Return the id of an artifact. It has one row for each scope."""
        scope, name = artifact_scope(artifact, repository), str(artifact)
        key = ("artifact", scope, name)
        if key not in self._ids.cache:
            values = {"scope": scope, "name": name}
            rows = self._db.rows("find_artifact", **values) or self._db.rows("add_artifact", **values)
            self._ids.cache[key] = rows[0][0]
        return self._ids.cache[key]

    def add_needs(
        self, chain: JobId, spec: Spec, needs: Sequence[Artifact], missing_producer: MissingProducer | None
    ) -> None:
        """Store the needs and the pin of a new job."""
        for n, need in enumerate(needs):
            artifact = self.id_of(need, spec.repository)
            rule = missing_producer or need.definition.missing_producer
            self._db.run("add_need", chain=chain, sequence=n, artifact=artifact, missing_producer=rule.value)
            if need.job is not None:
                self._add_patch(need.job, artifact)
        if spec.pinned_head is not None and spec.repository is not None:
            pin = msgspec.structs.asdict(spec.pinned_head)
            self._db.run("add_pin", chain=chain, repository=spec.repository, **pin)

    def _add_patch(self, job: JobId, artifact: int) -> None:
        """Store that a job produces its patch, although the job did not declare it."""
        ((chain,),) = self._db.rows("chain_of", job=job)
        self.add_product(chain, artifact, sequence=None)

    def add_products(self, chain: JobId, spec: Spec, products: Sequence[Artifact]) -> None:
        for n, artifact in enumerate(products):
            self.add_product(chain, self.id_of(artifact, spec.repository), sequence=n)

    def add_product(self, chain: JobId, artifact: int, *, sequence: int | None) -> None:
        self._db.run("add_product", chain=chain, artifact=artifact, sequence=sequence)

    def wake_needing(self, artifacts: Sequence[int]) -> None:
        if artifacts:
            self._db.run("wake_needing", artifacts=list(artifacts))

    def wake_pinned(self, head: BranchHead) -> None:
        self._db.run("wake_pinned", repository=head.repository, branch=head.branch)

    def clear_rewound(self, chain: JobId) -> None:
        """Let existing products count again, because the rewound chain has ended."""
        self._db.run("clear_rewound_products", chain=chain)

    def mark_unchecked(self, chain: JobId) -> None:
        """Mark the declared products of a chain that has succeeded as unchecked."""
        self._db.run("mark_products_unchecked", chain=chain)

    def record_check(self, chain: JobId, job: JobId, missing: Sequence[tuple[int, str]], now: datetime) -> None:
        """Record which declared products are missing after a success, by id and name."""
        if missing:
            self._db.run("mark_products_missing", chain=chain, artifacts=[artifact for artifact, _ in missing])
            data = {"artifacts": [name for _, name in missing]}
            self._events.emit(
                Event(kind="job.products_missing", at=to_micros(now), cause="artifact", job=job, data=data)
            )
        self._db.run("clear_product_checks", chain=chain)

    def put(self, artifact: int, payload: str | None, job: JobId | None, now: datetime) -> None:
        self._db.run("put_artifact", artifact=artifact, payload=payload, job=job, now=to_micros(now))

    def withdraw_of_job(self, job: JobId) -> None:
        """Withdraw the artifacts that a failed job put."""
        self.wake_needing([row[0] for row in self._db.rows("withdraw_artifacts_of_job", job=job)])

    def withdraw(self, artifact: int) -> PutArtifact | None:
        """Withdraw the put artifact with this id and return it, or None if it was not put."""
        withdrawn = next(iter(self._read_put("find_put_artifact", artifact=artifact)), None)
        if withdrawn is not None:
            self._db.run("put_artifact", artifact=artifact, payload=None, job=None, now=None)
            self.wake_needing([artifact])
        return withdrawn

    def record_put(self, run: RunId, artifact: str) -> None:
        """Add an artifact to the list of artifacts that a run has put, without repeats."""
        ((text,),) = self._db.rows("artifacts_of_run", run=run)
        recorded = decode_or_default(text, list[str], []) if text else []
        if artifact not in recorded:
            amended = amend(artifacts=msgspec.json.encode([*recorded, artifact]).decode())
            self._db.run("set_artifacts_of_run", run=run, **amended)

    def emit_put(
        self,
        artifact: str,
        job: JobId | None,
        run: RunId | None,
        now: datetime,
        actor: str | None,
        *,
        is_removed: bool = False,
    ) -> None:
        kind = "artifact.removed" if is_removed else "artifact.put"
        data = {"artifact": artifact}
        event = Event(kind=kind, at=to_micros(now), cause="artifact", actor=actor, job=job, run=run, data=data)
        self._events.emit(event)
