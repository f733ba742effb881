"""`submit`: check jobs completely, then store them; a refused submit leaves no trace.

    submitted          the jobs are stored, perhaps with warnings
    already_active     another chain has the unique key; its job is returned
    deferred           the queue is full

The last two are results and not refusals. They are decided before any check that reads the store, and before any write.
Fields that are invalid by themselves are refused first, so that no client retries a submit in vain.

The depth of the queue is read only if a limit applies to the jobs.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import msgspec

from rota.db.jobs import NewJob
from rota.engine.dispatch import plan_starts
from rota.engine.transaction import Settings, Transaction
from rota.errors import RotaError, error_path, escape_unprintable
from rota.groups.commands import add_members, check_group, enroll
from rota.ids import GroupId, JobId, format_job_id, format_schedule_id
from rota.jobs.dependencies import local_names_by_job, refuse_cycles, refuse_unknown_patches, resolve_edges
from rota.jobs.preflight import EMPTY_PREFLIGHT, Preflight, ResolvedInputs
from rota.jobs.submission import (
    DefaultEnvironment,
    GroupRequest,
    JobOrigin,
    Submission,
    check_cwd,
    check_fields,
    check_limits,
    check_variables,
    merge_locks,
    parse_delay,
    parse_limit,
)
from rota.kernel.backpressure import (
    DELAYED_WARNING,
    DepthLimits,
    QueueDepth,
    format_depth,
    format_full_queue,
    is_delayed,
    is_full,
)
from rota.kernel.edges import Edge, EdgeState
from rota.kernel.job import Spec, WorkspaceSpec
from rota.kernel.locks import Lock, phase_lock
from rota.kernel.pools import PoolDemand
from rota.kernel.queue import collect_unique_keys
from rota.kernel.retry import DEFAULT_POLICY, FLEET_POLICY, RetryPolicies
from rota.kernel.tick import can_skip_evaluation
from rota.kernel.trace import Trace, merge_traces, split_trace
from rota.webhooks.commands import make_job_webhook

DEFERRAL_RETRY_DELAY = timedelta(seconds=5)
"""Suggested delay before the retry of a deferred submit: a guess, as the ends of jobs cannot be predicted."""
W = TypeVar("W")
C = TypeVar("C")
_NO_INPUTS = ResolvedInputs()
_MANUAL_ORIGIN = JobOrigin()
_MAX_SHOWN_LENGTH = 80
"""Maximum characters of a long name in a warning."""
_MAX_LISTED_ENDED = 5
_CheckedMember = tuple[
    JobId, Submission, tuple[tuple[Edge, EdgeState], ...], ResolvedInputs, WorkspaceSpec | None, JobOrigin
]
"""Job of a submit with its edges, inputs, workspace and origin."""
Programs = frozenset[tuple[str, str, str]]
"""Working directory, program and search path of each job, without repeats."""


class DeferredSubmit(msgspec.Struct, frozen=True, kw_only=True):
    depth: QueueDepth
    limits: DepthLimits
    """Limits of the whole queue."""
    message: str
    """Reason and remedy."""


class DelayWarning(msgspec.Struct, frozen=True, kw_only=True):
    depth: QueueDepth
    limits: DepthLimits
    message: str


class AcceptedSubmit(msgspec.Struct, frozen=True, kw_only=True):
    jobs: list[JobId]
    warnings: list[str]
    new_jobs: Sequence[NewJob] = ()
    """Jobs that this submit has stored."""
    flows: frozenset[str] = frozenset()
    """Flows of the jobs."""
    created_group: GroupId | None = None
    """Group of the jobs, if the submit created one."""


class DuplicateSubmit(msgspec.Struct, frozen=True, kw_only=True):
    active: Mapping[str, JobId]
    """Active jobs with the unique keys, by key."""

    @property
    def jobs(self) -> list[JobId]:
        return list(dict.fromkeys(self.active.values()))


SubmitOutcome = AcceptedSubmit | DuplicateSubmit | DeferredSubmit


def submit(
    tx: Transaction,
    submissions: Sequence[Submission],
    default_environment: DefaultEnvironment,
    *,
    actor: str | None,
    warnings: Sequence[str] = (),
    preflight: Preflight = EMPTY_PREFLIGHT,
    workspaces: Sequence[WorkspaceSpec | None] = (),
    origins: Sequence[JobOrigin] = (),
    group_request: GroupRequest | None = None,
) -> SubmitOutcome:
    """Store the jobs, all or none. If any of them has a workspace or an origin, `workspaces` or `origins` has one entry
    for each. With `group_request`, the jobs become the members of a new group."""
    _check_each(submissions, check_fields)
    if group_request is not None:
        check_group(group_request)
    with error_path(".jobs"):
        keys = collect_unique_keys([member.unique for member in submissions])
    if active := tx.jobs.key_holders(keys):
        _check_all_limits(tx, submissions)
        return DuplicateSubmit(active={key: holder.job for key, holder in active.items()})
    if preflight.refusal is not None:
        raise preflight.refusal
    is_fire = any(origin.schedule is not None for origin in origins)
    if not is_fire and (deferred := check_deferral(tx, collect_flows(submissions))) is not None:
        _check_all_limits(tx, submissions)
        return deferred
    tx.record_observed(preflight.observed, preflight.probe_number)
    ids = tx.ids.allocate_jobs(len(submissions))
    checker = SubmitChecker(tx, default_environment)
    enrollment = enroll(tx, ids, submissions, group_request, actor)
    edges = resolve_edges(tx, ids, submissions, enrollment)
    inputs = preflight.inputs or [_NO_INPUTS] * len(ids)
    all_workspaces = workspaces or [None] * len(ids)
    all_origins = origins or [_MANUAL_ORIGIN] * len(ids)
    jobs = checker.check_all(zip(ids, submissions, edges.values(), inputs, all_workspaces, all_origins, strict=True))
    if enrollment.memberships:
        jobs = add_members(tx, jobs, enrollment)
    if preflight.inputs:
        refuse_unknown_patches(tx, jobs, submissions)
        refuse_cycles(tx, jobs, local_names_by_job(ids, submissions))
    tx.jobs.add(jobs, tx.now, actor)
    tx.effects.has_new_jobs = True
    return AcceptedSubmit(
        jobs=ids,
        warnings=[*warnings, *checker.warnings],
        new_jobs=jobs,
        flows=collect_flows(submissions),
        created_group=enrollment.created_group,
    )


def _check_all_limits(tx: Transaction, submissions: Sequence[Submission]) -> None:
    """Refuse what a full submit would refuse: a client must not be told to retry an invalid submit."""

    def check(member: Submission) -> None:
        check_limits(member, tx.settings.retry, tx.now)
        make_job_webhook(member, tx.settings.webhooks)
        tx.settings.pool_sizes.refuse_oversized(tx.settings.policy.pool_demand(member))

    _check_each(submissions, check)


def _check_each(members: Iterable[W], check: Callable[[W], C]) -> list[C]:
    checked: list[C] = []
    try:
        for member in members:
            checked.append(check(member))  # noqa: PERF401 - its length locates an error
    except RotaError:
        with error_path(f".jobs[{len(checked)}]"):
            raise
    return checked


def warn_of_ended(tx: Transaction, outcome: SubmitOutcome) -> SubmitOutcome:
    """Add a warning about jobs of a submit that ended within its turn, before they could start."""
    if not isinstance(outcome, AcceptedSubmit) or not any(job.edges or job.needs for job in outcome.new_jobs):
        return outcome
    text = describe_ended(tx, outcome.jobs)
    return outcome if text is None else msgspec.structs.replace(outcome, warnings=[*outcome.warnings, text])


def describe_ended(tx: Transaction, jobs: Sequence[JobId]) -> str | None:
    """Return a warning about the jobs among these that have ended within the turn; None if there are none."""
    ended = tx.jobs.ended(jobs)
    if not ended:
        return None
    listed = [f"{format_job_id(job)} {status}: {reason}" for job, status, reason in ended[:_MAX_LISTED_ENDED]]
    more = f" and {len(ended) - len(listed)} more" if len(ended) > len(listed) else ""
    if tx.is_dry_run:
        return f"would end at once, without a run: {', '.join(listed)}{more}"
    first = format_job_id(ended[0][0])
    advice = f"resolve that, then `rota rewind {first}` queues {'it' if len(ended) == 1 else 'the first'} again"
    return f"ended at once, without a run: {', '.join(listed)}{more}; {advice}"


def find_delays(tx: Transaction, outcomes: Sequence[SubmitOutcome]) -> list[DelayWarning | None]:
    """Return the delay warning of each outcome. Call it at the end of the turn."""
    flows = [outcome.flows if isinstance(outcome, AcceptedSubmit) else None for outcome in outcomes]
    return check_delays(tx, flows)


def check_deferral(tx: Transaction, flows: Iterable[str]) -> DeferredSubmit | None:
    """Return the deferral of a submit of jobs of these flows, or None while the queue has room."""
    settings = tx.settings
    limits_by_flow = settings.queue.resolve_for_flows(sorted(flows), settings.pool_sizes)
    if all(limits.hard is None for limits in limits_by_flow.values()):
        return None
    depth = tx.queue.depth()
    for flow, limits in limits_by_flow.items():
        is_over_limit = is_full(depth.of_flow(flow), limits)
        if is_over_limit and is_full(depth.of_flow(flow) - _count_imminent_starts(tx, flow), limits):
            message = format_full_queue(flow, depth, limits)
            total_limits = settings.queue.resolve_total(settings.pool_sizes)
            return DeferredSubmit(depth=depth, limits=total_limits, message=message)
    return None


def _count_imminent_starts(tx: Transaction, flow: str | None) -> int:
    """Count the ready jobs that start before this turn ends. Only jobs stored in this turn can, and its plan names
    them."""
    settings = tx.settings
    if not tx.effects.has_new_jobs or settings.dispatch_interval is not None or settings.spawn_delay:
        return 0
    claims = plan_starts(tx, settings.pool_sizes, settings.batch_size, holds=tx.holds).claims
    if flow is None:
        return len(claims)
    lanes = {scope.lane for scope in tx.lanes.scopes() if scope.flow == flow}
    return sum(claim.lane in lanes for claim in claims)


def check_delays(tx: Transaction, flows_by_submit: Sequence[Set[str] | None]) -> list[DelayWarning | None]:
    """Return the delay warning of each submit, given the flows of its jobs; None stands for a submit that stored
    nothing. Call it at the end of a turn, after its dispatch."""
    settings = tx.settings
    limits_by_submit = [
        {} if flows is None else settings.queue.resolve_for_flows(flows, settings.pool_sizes)
        for flows in flows_by_submit
    ]
    if all(limits.soft is None for limits_by_flow in limits_by_submit for limits in limits_by_flow.values()):
        return [None] * len(flows_by_submit)
    depth = tx.queue.depth()
    total_limits = settings.queue.resolve_total(settings.pool_sizes)
    warning = DelayWarning(depth=depth, limits=total_limits, message=f"{DELAYED_WARNING}: {format_depth(depth)}")
    return [
        warning if any(is_delayed(depth.of_flow(flow), limits) for flow, limits in limits_by_flow.items()) else None
        for limits_by_flow in limits_by_submit
    ]


class SubmitChecker:
    """Checker of the jobs of one submit; lookups that several jobs share are cached."""

    def __init__(self, tx: Transaction, default_environment: DefaultEnvironment) -> None:
        self._tx = tx
        self._default_environment = default_environment
        self._pool_demand: dict[tuple[object, ...], PoolDemand] = {}
        self._last_environment: tuple[bool, Mapping[str, str], int, Trace] | None = None
        """Environment of the previous job, the id of its record, and its trace: the next job mostly shares them."""
        self.warnings: dict[str, None] = {}

    def check_all(self, members: Iterable[_CheckedMember]) -> list[NewJob]:
        return _check_each(members, lambda member: self.check(*member))

    def check(
        self,
        job: JobId,
        submission: Submission,
        edges: tuple[tuple[Edge, EdgeState], ...],
        inputs: ResolvedInputs,
        workspace: WorkspaceSpec | None,
        origin: JobOrigin = _MANUAL_ORIGIN,
    ) -> NewJob:
        spec = self.make_spec(submission, inputs, workspace, origin)
        demand = self.pool_demand(spec)
        not_before = parse_delay(submission.delay, self._tx.now)
        unmet = sum(1 for _, state in edges if state is not EdgeState.MET)
        return NewJob(
            id=job,
            spec=spec,
            priority=submission.priority or 0,
            not_before=not_before,
            edges=edges,
            demand=demand,
            unique=submission.unique,
            is_ready=can_skip_evaluation(
                unmet=unmet,
                not_before=not_before,
                locks=spec.locks,
                needs_facts=bool(inputs.needs or inputs.pinned_head),
            ),
            needs=inputs.needs,
            products=inputs.products,
            missing_producer=submission.missing_producer,
        )

    def pool_demand(self, spec: Spec) -> PoolDemand:
        key = (spec.type, spec.flow, spec.target, *spec.pools.items())
        demand = self._pool_demand.get(key)
        if demand is None:
            settings = self._tx.settings
            demand = self._pool_demand[key] = settings.policy.pool_demand(spec)
            if spec.schedule is None:  # a fire is never refused: its job waits until the pool grows
                settings.pool_sizes.refuse_oversized(demand)
            self.warnings.update(dict.fromkeys(settings.pool_sizes.warnings(demand, spec.pools)))
        return demand

    def make_spec(
        self,
        submission: Submission,
        inputs: ResolvedInputs = _NO_INPUTS,
        workspace: WorkspaceSpec | None = None,
        origin: JobOrigin = _MANUAL_ORIGIN,
    ) -> Spec:
        cwd = submission.cwd if submission.cwd is not None else self._default_environment.cwd
        check_cwd(cwd)
        environment, trace = self._store_environment(submission)
        spec = build_spec(
            self._tx.settings, submission, inputs, workspace, origin, cwd=cwd, environment=environment, trace=trace
        )
        self._tx.effects.has_webhook_urls = self._tx.effects.has_webhook_urls or spec.webhook is not None
        return spec

    def _store_environment(self, submission: Submission) -> tuple[int, Trace]:
        """Store the environment of the job; return its id and the trace, which is stored apart from it."""
        if self._last_environment is not None and (self._last_environment[0], self._last_environment[1]) == (
            submission.inherit_env,
            submission.env,
        ):
            return self._last_environment[2:]
        variables = merge_variables(submission, self._default_environment)
        check_variables(variables)
        shared, own = split_trace(variables)
        environment, trace = self._tx.jobs.environment_id(shared), merge_traces(own, self._default_environment.trace)
        self._last_environment = submission.inherit_env, submission.env, environment, trace
        return environment, trace


def build_spec(
    settings: Settings,
    submission: Submission,
    inputs: ResolvedInputs = _NO_INPUTS,
    workspace: WorkspaceSpec | None = None,
    origin: JobOrigin = _MANUAL_ORIGIN,
    *,
    cwd: str,
    environment: int,
    trace: Trace,
) -> Spec:
    """Build the spec of a submission from the settings, without the store."""
    return Spec(
        command=tuple(submission.command),
        cwd=cwd,
        environment=environment,
        trace=trace,
        name=submission.name,
        type=submission.type,
        params=submission.params,
        flow=submission.flow,
        phase=submission.phase,
        target=submission.target,
        pools=submission.pools,
        locks=merge_locks(submission.locks, make_phase_lock(submission)),
        timeout=parse_limit("timeout", submission.timeout),
        idle_timeout=parse_limit("idle_timeout", submission.idle_timeout),
        skip_if=submission.skip_if,
        retry=settings.retry.choose(
            name=submission.retry,
            retries=submission.retries,
            flow=submission.flow,
            fallback=None if origin.is_by_hand else DEFAULT_POLICY,
        ),
        repository=inputs.repository,
        needs=tuple(map(str, inputs.needs)),
        produces=tuple(map(str, inputs.products)),
        pinned_head=inputs.pinned_head,
        workspace=workspace,
        template=origin.template,
        schedule=origin.schedule,
        template_snapshot=origin.template_snapshot,
        webhook=make_job_webhook(submission, settings.webhooks),
        sources=_collect_sources(submission, origin, settings.retry),
    )


def _collect_sources(submission: Submission, origin: JobOrigin, policies: RetryPolicies) -> Mapping[str, str]:
    own_source = "option" if origin.schedule is None else format_schedule_id(origin.schedule)
    sources = dict(origin.sources)
    if submission.priority == 0:
        sources.setdefault("priority", own_source)
    if submission.missing_producer is not None:
        sources.setdefault("missing_producer", own_source)
    name = submission.retry
    if name is not None:
        chosen_by = sources.get("retry", own_source)
    elif submission.flow is not None:
        name, chosen_by = FLEET_POLICY, "flow default"
    elif submission.retries is not None:
        name, chosen_by = DEFAULT_POLICY, None
    elif origin.is_by_hand:
        return sources
    else:
        kind = "template" if origin.template is not None else "schedule" if origin.schedule is not None else "legacy"
        name, chosen_by = DEFAULT_POLICY, f"{kind} default"
    counted_by = None if submission.retries is None else sources.get("retries", own_source)
    return {**sources, **policies.sources(name, chosen_by=chosen_by, counted_by=counted_by)}


def make_phase_lock(submission: Submission) -> Lock | None:
    if submission.phase is None or submission.flow is None or submission.parallelizable:
        return None
    return phase_lock(submission.phase, submission.flow)


def collect_flows(submissions: Sequence[Submission]) -> frozenset[str]:
    return frozenset(member.flow for member in submissions if member.flow is not None)


def merge_variables(submission: Submission, default_environment: DefaultEnvironment) -> Mapping[str, str]:
    return {**default_environment.variables, **submission.env} if submission.inherit_env else submission.env


def collect_programs(submissions: Sequence[Submission], default_environment: DefaultEnvironment) -> Programs:
    return frozenset(
        (member.cwd or default_environment.cwd, member.command[0], _search_path(member, default_environment))
        for member in submissions
        if member.command
    )


def _search_path(submission: Submission, default_environment: DefaultEnvironment) -> str:
    return submission.env.get("PATH", default_environment.variables.get("PATH", "") if submission.inherit_env else "")


def find_missing_programs(programs: Programs) -> list[str]:
    """Return warnings about missing programs and directories. They are no error, since a predecessor may create them.
    The file system may be slow, so never call this inside a transaction."""
    return sorted({warning for program in programs if (warning := _try_find_missing(*program)) is not None})


def _try_find_missing(cwd: str, program: str, search_path: str) -> str | None:
    try:
        return _find_missing(cwd, program, search_path)
    except OSError as error:  # such as a name that is too long for the file system
        return f"{program[:_MAX_SHOWN_LENGTH]} in {cwd[:_MAX_SHOWN_LENGTH]} cannot be looked for: {error.strerror}"


def _find_missing(cwd: str, program: str, search_path: str) -> str | None:
    if "\x00" in cwd + program:
        return None
    if not Path(cwd).is_dir():
        return f"the working directory {escape_unprintable(cwd)} does not exist (yet)"
    path = shutil.which(str(Path(cwd) / program)) if "/" in program else shutil.which(program, path=search_path)
    if path:
        return None
    if "/" in program and (Path(cwd) / program).is_file():
        return f"program not executable (yet): {program}"
    return f"program not found (yet): {program}"
