"""`retry`: queue an ended chain again, or end its backoff; its count of retries is reset."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from rota.db.session import AnyReader
from rota.engine.finish import RETRY_CAUSE
from rota.engine.transaction import Transaction
from rota.errors import Conflict, InvalidInput, NotFound
from rota.ids import GroupId, JobId, format_group_id, format_job_id, parse_job_id, parse_run_id
from rota.jobs.dependencies import refuse_chain_cycles
from rota.jobs.rewind import StartFacts, find_start_facts
from rota.jobs.submit import describe_ended
from rota.kernel.artifacts import ArtifactPaths
from rota.kernel.edges import DependencyPolicy
from rota.kernel.facts import Fact
from rota.kernel.queue import refuse_held_keys
from rota.kernel.status import STARTED, WAITING, Status
from rota.probe.port import Probe

_MAX_LISTED_JOBS = 5
_MAX_DROPPED = 1000
_CLEARED_FIELDS = {
    "not_before": "its delay",
    "retries": "its count of retries",
    "dispatch_failures": "its count of failed starts",
}


class RetryOutcome(msgspec.Struct, frozen=True, kw_only=True):
    job: JobId
    """Last job of the chain, which will run."""
    message: str
    """Effect of the retry; never empty."""
    blocked: list[JobId] = []
    """Jobs after it that its failure blocked; they stay blocked."""
    dropped: list[JobId] = []
    """Members that the group's policy ended; they stay ended."""
    advice: str | None = None


_NO_FACTS = StartFacts()


def find_retry_facts(reader: AnyReader, reference: str, paths: ArtifactPaths) -> tuple[Fact, ...]:
    """Return the facts that decide whether the retried chain may start. The chain of an unknown id has none."""
    try:
        record = reader.jobs.find(resolve_job(reader, reference))
    except NotFound:
        return ()
    return () if record is None else find_start_facts(reader, [record.chain], paths)


def probe_retry_facts(facts: Collection[Fact], probe: Probe, probe_number: int) -> StartFacts:
    """Probe git and the file system, which may be slow."""
    return StartFacts(observed=probe.observe(set(facts)), probe_number=probe_number)


def retry(tx: Transaction, reference: str, *, actor: str, facts: StartFacts = _NO_FACTS) -> RetryOutcome:
    """Retry the chain of a run or job id. `facts`: the values of the facts that decide its start."""
    outcome = _retry_chain(tx, resolve_job(tx, reference), actor)
    tx.record_observed(facts.observed, facts.probe_number)
    return outcome


def warn_of_ended_retry(tx: Transaction, outcome: RetryOutcome) -> RetryOutcome:
    """Add a warning if the retried job has ended at once, without a run. Call it at the end of the turn."""
    ended = describe_ended(tx, [outcome.job])
    if ended is None:
        return outcome
    return msgspec.structs.replace(outcome, advice=ended if outcome.advice is None else f"{ended}; {outcome.advice}")


def check_reference(reference: str) -> str:
    """Return the reference if it is a job or run id; refuse it otherwise."""
    if not reference.startswith(("run-", "job-")):
        raise InvalidInput(f"not a job or run id: {reference!r}; they look like job-24 and run-24")
    parse_run_id(reference) if reference.startswith("run-") else parse_job_id(reference)
    return reference


def resolve_job(reader: AnyReader, reference: str) -> JobId:
    """Return the job of a job or run id."""
    is_run = check_reference(reference).startswith("run-")
    job = reader.runs.job_of(parse_run_id(reference)) if is_run else parse_job_id(reference)
    if job is not None and reader.chains.last_job(job) is None:
        raise reader.jobs.not_found(job)
    if job is None:
        raise NotFound(f"no such {reference.partition('-')[0]}: {reference}; `rota list --all` lists all jobs")
    return job


def _retry_chain(tx: Transaction, job: JobId, actor: str) -> RetryOutcome:
    state = tx.chains.states([job])[job]
    last, name = state.last, format_job_id(state.last)
    if state.status in WAITING:
        return _clear_delays(tx, last, actor)
    if state.status in STARTED:
        raise Conflict(f"{name} is running; `rota wait {name}` for its end, or `rota cancel {name}` first")
    if state.status is Status.UNREADABLE:
        raise Conflict(f"the status of {name} is unknown; `rota cancel {name}` ends it, then it can be retried")
    if state.status in (Status.COMPLETED, Status.SKIPPED):
        raise Conflict(f"{name} ended {state.status}, so there is nothing to retry; `rota rewind {name}` runs it again")
    if state.unique is not None:
        active = tx.jobs.key_holders([state.unique])
        refuse_held_keys([(last, state.unique)], active, [state.chain], action="retry")
    _refuse_blocked(tx, last)
    tx.edges.reopen(state.chain)
    successor = tx.chains.retry(last, retries=0, not_before=None, now=tx.now, cause=RETRY_CAUSE, actor=actor)
    refuse_chain_cycles(tx, [state.chain])
    blocked = tx.chains.blocked_successors(state.chain)
    dropped: list[JobId] = []
    if state.group is not None:
        tx.groups.reopen(state.group, tx.now, cause=RETRY_CAUSE, actor=actor)
        dropped = [job for job in tx.groups.dropped_members(state.group, _MAX_DROPPED) if job != last]
    text = f"{format_job_id(successor)} retries {name} ({state.status})"
    return RetryOutcome(
        job=successor,
        message=text,
        blocked=blocked,
        dropped=dropped,
        advice=_make_advice(blocked, dropped, state.group),
    )


def _clear_delays(tx: Transaction, job: JobId, actor: str) -> RetryOutcome:
    name = format_job_id(job)
    cleared = tx.jobs.reset_backoff(job, tx.now, actor)
    if not cleared:
        return RetryOutcome(
            job=job, message=f"{name} is already waiting, and not for a delay; `rota why {name}` shows the reason"
        )
    fields = ", ".join(_CLEARED_FIELDS[field] for field in cleared)
    return RetryOutcome(job=job, message=f"{name} is already waiting; cleared: {fields}")


def _refuse_blocked(tx: Transaction, job: JobId) -> None:
    """Refuse a retry whose job would end at once because of an edge that cannot be met."""
    edge = tx.chains.first_unmeetable_edge(job)
    if edge is None:
        return
    last, policy, status = edge
    name, other = format_job_id(job), format_job_id(last)
    if policy is DependencyPolicy.FAILED:
        raise Conflict(f"{name} is not needed: it runs only after a failure of {other}, which ended {status}")
    raise Conflict(
        f"{name} would be blocked again: dependency failed for job {other} ({status}); "
        f"`rota retry {other}` first, then `rota retry {name}`"
    )


def _make_advice(blocked: list[JobId], dropped: list[JobId], group: GroupId | None) -> str | None:
    sentences = []
    if blocked:
        commands = ", ".join(f"`rota rewind {format_job_id(job)}`" for job in blocked[:_MAX_LISTED_JOBS])
        if len(blocked) == 1:
            effect = f"stays BLOCKED_BY_DEPENDENCY; {commands} lets it follow the chain again"
        else:
            effect = f"stay BLOCKED_BY_DEPENDENCY; {commands} let them follow the chain again"
        sentences.append(f"{_format_jobs(blocked)} {effect}")
    if dropped and group is not None:
        command = f"`rota group rewind {format_group_id(group)}`"
        if len(dropped) == 1:
            effect = f"stays as the group's policy left it; {command} lets it run too"
        else:
            effect = f"stay as the group's policy left them; {command} lets them run too"
        sentences.append(f"{_format_jobs(dropped)} {effect}")
    return "; ".join(sentences) or None


def _format_jobs(jobs: list[JobId]) -> str:
    names = [format_job_id(job) for job in jobs[:_MAX_LISTED_JOBS]]
    more = f" and {len(jobs) - len(names)} more" if len(jobs) > len(names) else ""
    return f"{', '.join(names)}{more}"
