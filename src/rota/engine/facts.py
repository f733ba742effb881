"""External facts: what the engine knows about artifacts and branch heads, and how it learns of changes.

The tick does no I/O. The prober reads artifacts and heads in its own thread and returns its observations as requests.

    evaluate ── undecided ──▶ prober ──▶ record ──▶ evaluate the job again
    plan ── to be confirmed ──▶ prober ──▶ record ──▶ claim the job, if its gates still pass
    timer, or `rota tick` ──▶ all watched facts ──▶ record the changed ones
    submit, rewind ──▶ bring their own observations

A job that needs artifacts or is pinned starts only in a turn that brings an observation of its facts. The probe must
have begun after the job was chosen, or after the last end of a run. So the facts of every job that starts are fresh,
however old the observation that let the job pass its gates. Likewise, since being blocked is final, a job is blocked
for a missing artifact only after a second probe, which began after the first one reported it missing.

Observations are kept in memory only (`fact_cache.py`), because anything may change while no scheduler runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from rota.db.session import AnyReader
from rota.engine.fact_cache import FactCache
from rota.engine.transaction import ProbeRequest, Transaction
from rota.ids import JobId
from rota.kernel.artifacts import (
    ArtifactPaths,
    Observations,
    artifact_names_for_file,
    fact_for_need,
    facts_for_needs,
    judge_needs,
    judge_pin,
)
from rota.kernel.facts import BranchHead, Fact, FactValue, FileExists
from rota.kernel.gates import Candidate, GateContext
from rota.kernel.lanes import Claim
from rota.kernel.status import Status
from rota.kernel.tick import Placement, evaluate
from rota.kernel.verdict import PASS
from rota.probe.port import Probe


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a probe, and the requests that it answers."""

    observed: Mapping[Fact, FactValue]
    probe_number: int
    probe_requests: Sequence[ProbeRequest] = ()


def find_watched_facts(reader: AnyReader, paths: ArtifactPaths) -> frozenset[Fact]:
    """Return the facts that waiting jobs depend on."""
    facts = (fact_for_need(artifact.need, paths) for artifact in reader.artifacts.watched())
    return frozenset((*(fact for fact in facts if fact is not None), *reader.artifacts.watched_heads()))


def probe_facts(
    facts: Collection[Fact], probe: Probe, fact_cache: FactCache, probe_requests: Sequence[ProbeRequest] = ()
) -> Observation:
    """Read the facts from the file system. This may block, so never call it in a transaction."""
    number = fact_cache.begin_probe()
    return Observation(
        observed=probe.observe(facts) if facts else {}, probe_number=number, probe_requests=probe_requests
    )


def filter_changed(observation: Observation, known_values: Mapping[Fact, FactValue]) -> Observation:
    """Return the observation without the values that are known."""
    changed = {
        fact: value
        for fact, value in observation.observed.items()
        if fact not in known_values or known_values[fact] != value
    }
    return msgspec.structs.replace(observation, observed=changed)


def record_observation(tx: Transaction, observation: Observation) -> None:
    """Record observed values, and mark the jobs that asked for them dirty."""
    tx.record_observed(observation.observed, observation.probe_number)
    for request in observation.probe_requests:
        if request.chain is None:
            tx.effects.answered_jobs.add(request.job)
        if request.is_undecided:
            tx.queue.wake(request.job)
    _check_products(tx, observation)


def expect_products(tx: Transaction, chain: JobId, job: JobId) -> None:
    """Request a check of the declared products of a chain, after its job succeeded."""
    tx.artifacts.mark_unchecked(chain)
    tx.effects.probe_requests.append(_product_probe(tx, tx.settings.artifact_paths, chain, job))


def unfinished_checks(reader: AnyReader, paths: ArtifactPaths) -> list[ProbeRequest]:
    """Return the product checks that an earlier scheduler left undone."""
    return [_product_probe(reader, paths, chain, job) for chain, job, _ in sorted(reader.artifacts.unchecked_chains())]


def _product_probe(reader: AnyReader, paths: ArtifactPaths, chain: JobId, job: JobId) -> ProbeRequest:
    products = [need for _, need in reader.artifacts.unchecked_products(chain)]
    return ProbeRequest(job=job, facts=tuple(facts_for_needs(products, paths)), is_undecided=False, chain=chain)


def _check_products(tx: Transaction, observation: Observation) -> None:
    """Record which declared products are missing. A job that was rewound or edited since is checked after its next
    success. An unreadable product does not count as missing."""
    checks = [(request.chain, request) for request in observation.probe_requests if request.chain is not None]
    unchecked = tx.artifacts.unchecked_chains() if checks else set()
    observations = Observations(observed=observation.observed, paths=tx.settings.artifact_paths)
    for chain, request in checks:
        if any(tx.fact_cache.is_outdated(fact, observation.probe_number) for fact in request.facts):
            tx.effects.probe_requests.append(request)  # the facts were invalidated since: probe again
            continue
        is_current = (chain, request.job, Status.COMPLETED) in unchecked
        products = tx.artifacts.unchecked_products(chain) if is_current else []
        missing = [(number, str(need.artifact)) for number, need in products if observations.presence(need) is False]
        tx.artifacts.record_check(chain, request.job, missing, tx.now)


def wake_dependents(tx: Transaction) -> None:
    """Mark the jobs that depend on changed facts dirty."""
    changed, paths = tx.effects.changed_facts, tx.settings.artifact_paths
    if not changed:
        return
    names = [name for fact in changed if isinstance(fact, FileExists) for name in artifact_names_for_file(fact, paths)]
    artifacts = tx.artifacts.ids_named(names)
    for repository in sorted({fact.repository for fact in changed if not isinstance(fact, FileExists)}):
        needed = tx.artifacts.needed_in(repository)
        artifacts += [artifact.id for artifact in needed if fact_for_need(artifact.need, paths) in changed]
    tx.artifacts.wake_needing(artifacts)
    for fact in changed:
        if isinstance(fact, BranchHead):
            tx.artifacts.wake_pinned(fact)


def invalidate_products(tx: Transaction, chain: JobId) -> None:
    """Invalidate the facts about a chain's products, and mark the jobs that need them dirty."""
    products = tx.artifacts.products_of(chain)
    tx.invalidate_facts(
        fact for product in products if (fact := fact_for_need(product.need, tx.settings.artifact_paths)) is not None
    )
    tx.artifacts.wake_needing([product.id for product in products])


def request_undecided_facts(tx: Transaction, candidates: Iterable[Candidate], placements: Iterable[Placement]) -> None:
    """Ask for the facts without which an evaluation was undecided."""
    for candidate, placement in zip(candidates, placements, strict=True):
        tx.effects.has_watchers |= bool(candidate.needs) or candidate.pin is not None
        if placement.is_undecided:
            _add_probe_request(tx, candidate, is_undecided=True)


def confirm_blocks(
    tx: Transaction, candidates: Sequence[Candidate], placements: Sequence[Placement], context: GateContext
) -> list[Placement]:
    """Return the placements, with every unconfirmed block replaced by an undecided placement.

    A block counts as confirmed if its probe began after the artifact was first reported missing. An observation that
    this turn brings counts too, if no run has ended since."""
    without_facts = msgspec.structs.replace(
        context, observations=Observations(observed={}, paths=tx.settings.artifact_paths)
    )
    confirmed = list(placements)
    for n, (candidate, placement) in enumerate(zip(candidates, placements, strict=True)):
        job, stale = candidate.rank.job, tx.fact_cache.stale
        if (
            not candidate.needs
            or placement.new_status is not Status.BLOCKED_BY_DEPENDENCY
            or _is_confirmed(tx, candidate)
        ):
            stale.pop(job, None)
            continue
        (confirmed[n],) = evaluate([candidate], without_facts)
        if confirmed[n].is_undecided:
            stale.setdefault(job, tx.fact_cache.begin_probe())
    return confirmed


def _is_confirmed(tx: Transaction, candidate: Candidate) -> bool:
    asked_at = tx.fact_cache.stale.get(candidate.rank.job)
    if asked_at is None:
        return all(
            tx.effects.probe_numbers.get(fact, 0) > tx.fact_cache.last_run_end
            for fact in candidate.required_facts(tx.observations)
        )
    return all(
        max(tx.effects.probe_numbers.get(fact, 0), tx.fact_cache.probe_number(fact)) > asked_at
        for fact in candidate.required_facts(tx.observations)
    )


def _add_probe_request(tx: Transaction, candidate: Candidate, *, is_undecided: bool) -> None:
    facts = tuple(candidate.required_facts(tx.observations))
    tx.effects.probe_requests.append(ProbeRequest(job=candidate.rank.job, facts=facts, is_undecided=is_undecided))


def confirm_claims(tx: Transaction, claims: Sequence[Claim]) -> tuple[tuple[Claim, ...], bool]:
    """Return the claims whose facts are confirmed, and whether another job was marked dirty.

    The facts of the remaining claims are probed next. Their capacity stays reserved meanwhile, so that no job behind
    them takes it."""
    tx.effects.waiting_jobs = {}
    unconfirmed = [claim.job for claim in claims if claim.needs_facts]
    if not unconfirmed:
        return tuple(claims), False
    candidates = {candidate.rank.job: candidate for candidate in tx.queue.candidates(unconfirmed)}
    products = tx.artifacts.products_of_jobs([claim.job for claim in claims])
    being_produced: set[tuple[str, str]] = set()
    confirmed, has_marked = [], False
    for claim in claims:
        candidate = candidates.get(claim.job)
        if candidate is not None and not _is_fresh(tx, candidate, being_produced):
            _request_facts_once(tx, candidate)
            continue
        if candidate is not None and not _passes_gates(tx, candidate):
            tx.queue.wake(claim.job)
            has_marked = True
            continue
        confirmed.append(claim)
        being_produced.update(products.get(claim.job, ()))
    return tuple(confirmed), has_marked


def _request_facts_once(tx: Transaction, candidate: Candidate) -> None:
    """Ask for the facts of a chosen job, unless its probe request is still open."""
    job, waiting = candidate.rank.job, tx.fact_cache.waiting_jobs
    is_pending = job in waiting and job not in tx.effects.answered_jobs
    number = waiting[job] if is_pending else tx.fact_cache.begin_probe()
    tx.effects.waiting_jobs = {**(tx.effects.waiting_jobs or {}), job: number}
    if not is_pending:
        _add_probe_request(tx, candidate, is_undecided=False)


def _passes_gates(tx: Transaction, candidate: Candidate) -> bool:
    """Judge the facts again: an answer to another job's probe request may have changed them."""
    observations = tx.observations
    return judge_needs(candidate.needs, observations) is PASS and judge_pin(candidate.pin, observations) is PASS


def _is_fresh(tx: Transaction, candidate: Candidate, being_produced: Collection[tuple[str, str]]) -> bool:
    """Return whether this turn brings an observation of every fact of the job, from a probe that began after the last
    end of a run or after the job was chosen."""
    if any((need.scope, str(need.artifact)) in being_produced for need in candidate.needs):
        return False
    since = min(
        tx.fact_cache.last_run_end, tx.fact_cache.waiting_jobs.get(candidate.rank.job, tx.fact_cache.last_run_end)
    )
    return all(tx.effects.probe_numbers.get(fact, 0) > since for fact in candidate.required_facts(tx.observations))
