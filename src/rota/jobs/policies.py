"""The policies in force for a job, with their sources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rota.config.section import DEFAULT_POOLS
from rota.duration import format_duration
from rota.ids import format_schedule_id
from rota.jobs.schemas import EffectivePolicy
from rota.kernel.artifacts import ArtifactNeed
from rota.kernel.breaker import BreakerPolicy, breaker_keys
from rota.kernel.holds import format_time
from rota.kernel.job import DEFAULT_JOB_MESSAGES, Job, Spec
from rota.kernel.locks import phase_lock
from rota.kernel.pools import PoolDemand, PoolSizes
from rota.mask import mask_query
from rota.naming import GLOBAL

BUILT_IN = "built-in"


def effective_policies(
    job: Job, needs: Sequence[ArtifactNeed], *, limits: PoolSizes, breaker: BreakerPolicy
) -> list[EffectivePolicy]:
    spec, demand = job.spec, job.demand
    return [
        EffectivePolicy(name=name, value=value, source=source)
        for rows in (
            _start_policies(job),
            _retry_policies(spec),
            _run_policies(spec),
            _need_policies(spec, needs),
            _webhook_policies(spec),
            _breaker_policies(spec, breaker),
            _pool_policies(spec, demand, limits),
            _lock_policies(spec),
        )
        for name, value, source in rows
    ]


_Row = tuple[str, str, str]


def _policy_source(spec: Spec, name: str, *, is_set: bool) -> str:
    """Return the recorded source. A set policy without a recorded source comes from the submit itself."""
    request = "option" if spec.schedule is None else format_schedule_id(spec.schedule)
    return spec.sources.get(name, request) if is_set else BUILT_IN


def _start_policies(job: Job) -> Iterator[_Row]:
    spec = job.spec
    yield (
        "priority",
        str(job.priority),
        _policy_source(spec, "priority", is_set=bool(job.priority or "priority" in spec.sources)),
    )
    if job.not_before is None:
        yield "delay", "none", BUILT_IN
    else:
        yield "delay", f"not before {format_time(job.not_before)}", _delay_source(job)
    if job.unique is not None:
        value = f"{job.unique}; until this job ends, a submit with this key returns it and stores nothing"
        yield "unique", value, _policy_source(spec, "unique", is_set=True)


def _delay_source(job: Job) -> str:
    if job.dispatch_failures:
        return "failed start (breaker.start_delays)"
    if job.retries and "delay" not in job.spec.sources:
        return "automatic retry (retry_delay)"
    return _policy_source(job.spec, "delay", is_set=True)


def _retry_policies(spec: Spec) -> Iterator[_Row]:
    retry = spec.retry
    if retry is None or not retry.max_retries:
        yield "retry", "no retries", _policy_source(spec, "retry", is_set=retry is not None or "retry" in spec.sources)
        return
    count = f"{retry.max_retries} {'retry' if retry.max_retries == 1 else 'retries'}"
    yield "retry", count, _policy_source(spec, "retry", is_set=True)
    delays = f"{format_duration(retry.base)} times {retry.multiplier:g} each, at most {format_duration(retry.cap)}"
    yield "retry_delay", f"{delays}, jitter {retry.jitter:.0%}", _policy_source(spec, "retry_delay", is_set=True)
    codes = ", ".join(map(str, retry.exit_codes))
    yield "retry_exit_codes", f"only {codes}" if codes else "all", _policy_source(spec, "retry_exit_codes", is_set=True)
    unknown = "no automatic retry" if retry.unknown_exit == "hold" else "retry"
    yield "unknown_exit", unknown, _policy_source(spec, "unknown_exit", is_set=True)


def _run_policies(spec: Spec) -> Iterator[_Row]:
    for name, limit in (("timeout", spec.timeout), ("idle_timeout", spec.idle_timeout)):
        yield (
            name,
            "none" if limit is None else format_duration(limit),
            _policy_source(spec, name, is_set=limit is not None),
        )
    if spec.skip_if is not None:
        yield "skip_if", spec.skip_if, _policy_source(spec, "skip_if", is_set=True)
    workspace = spec.workspace
    if workspace is not None and workspace.base is not None:
        yield "worktree", f"from {workspace.base}", _policy_source(spec, "worktree", is_set=True)
    elif workspace is not None and workspace.patch:
        yield "patch", "command.patch", _policy_source(spec, "patch", is_set=True)


def _need_policies(spec: Spec, needs: Sequence[ArtifactNeed]) -> Iterator[_Row]:
    for need in needs:
        artifact = need.artifact
        source = spec.sources.get("missing_producer", f"{artifact.type} default; {BUILT_IN}")
        yield f"need {artifact}", f"{need.missing_producer.value} while no job produces it", source


def _webhook_policies(spec: Spec) -> Iterator[_Row]:
    hook = spec.webhook
    if hook is None:
        return
    chosen = _policy_source(spec, "webhook_events", is_set=bool(hook.events))
    for n, url in enumerate(hook.urls):
        source = f"{_policy_source(spec, f'webhooks.{n}', is_set=True)}; events: {chosen}"
        yield "webhook", f"{mask_query(url)} for {', '.join(hook.events or DEFAULT_JOB_MESSAGES)}", source


def _configured_source(prefix: str, breaker: BreakerPolicy, *fields: str) -> str:
    defaults = BreakerPolicy()
    changed = [field for field in fields if getattr(breaker, field) != getattr(defaults, field)]
    keys = ", ".join(f"breaker.{field}" for field in changed or fields)
    return f"{prefix}{'configuration' if changed else BUILT_IN} ({keys})"


def _breaker_policies(spec: Spec, breaker: BreakerPolicy) -> Iterator[_Row]:
    value = f"{breaker.dispatch_failures} failed starts in a row end the job"
    yield "breaker", value, _configured_source("", breaker, "dispatch_failures")
    value = "off"
    if breaker.failures is not None:
        window, cool_down = format_duration(breaker.window), format_duration(breaker.cool_down)
        value = f"opens for {cool_down} after {breaker.failures} failed runs within {window}"
    for key in breaker_keys(spec.type, spec.target):
        prefix = f"{key.partition('/')[0]} default; "
        yield f"breaker {key}", value, _configured_source(prefix, breaker, "failures", "window", "cool_down")


def _pool_policies(spec: Spec, demand: PoolDemand, limits: PoolSizes) -> Iterator[_Row]:
    for name, weight in demand.items():
        kind = name.partition("/")[0]
        if name in spec.pools:
            source = _policy_source(spec, f"pools.{name}", is_set=True)
        else:
            source = BUILT_IN if name == GLOBAL else f"{kind} default"
        size = limits.size(name)
        value = f"{weight}, no limit" if size is None else f"{weight} of {size}"
        key = next((entry for entry in (name, f"{kind}/*") if entry in limits.sizes), None)
        if key is not None:
            size_source = BUILT_IN if DEFAULT_POOLS.get(key) == limits.sizes[key] else "configuration"
            source = f"{source}; size: {size_source} (pools.{key})"
        yield f"pool {name}", value, source


def _lock_policies(spec: Spec) -> Iterator[_Row]:
    phase = None if spec.phase is None or spec.flow is None else phase_lock(spec.phase, spec.flow).key
    for lock in spec.locks:
        source = "phase default" if lock.key == phase else _policy_source(spec, f"locks.{lock.key}", is_set=True)
        yield f"lock {lock.key}", lock.mode.value, source
