"""The methods of both clients, each with its request builder and its response type.

A method with several response types is a function here, a method with several requests is one of `streams`.
"""

from __future__ import annotations

from types import NoneType

import msgspec

from rota.artifacts.schemas import ArtifactPage, ArtifactView
from rota.client.requests.control import (
    clear,
    collect_garbage,
    get_gc_status,
    get_health,
    get_metrics,
    get_readiness,
    get_scheduler,
    list_breakers,
    list_events,
    list_pools,
    pause,
    preview_clear,
    reload,
    reset_breaker,
    resume,
    set_pool,
    stop,
    tick,
)
from rota.client.requests.definitions import (
    add_schedule,
    add_template,
    add_webhook,
    archive_template,
    change_schedule,
    change_template,
    disable_schedule,
    disable_webhook,
    enable_schedule,
    enable_webhook,
    get_delivery,
    get_schedule,
    get_template,
    get_webhook,
    get_webhook_secret,
    list_deliveries,
    list_schedules,
    list_templates,
    list_webhooks,
    next_fires,
    redeliver,
    remove_schedule,
    remove_webhook,
    replace_template,
    rotate_webhook,
    send_test_webhook,
    trigger_schedule,
    unarchive_template,
)
from rota.client.requests.direct import (
    add_reservation,
    get_reservation,
    list_reservations,
    release_reservation,
    renew_reservation,
    run_direct,
    signal_reservation,
)
from rota.client.requests.jobs import (
    add_group,
    close_group,
    edit_job,
    explain_job,
    get_artifact,
    get_graph,
    get_group,
    get_job,
    get_logs,
    get_progress,
    get_run,
    list_artifacts,
    list_groups,
    list_jobs,
    list_locks,
    list_queue,
    list_runs,
    list_runs_of_job,
    move_job,
    preview_batch,
    preview_cancel,
    preview_cancel_group,
    preview_submit,
    put_artifact,
    remove_artifact,
    reorder_queue,
    retry_run,
    rewind_group,
    rewind_job,
    submit_batch,
    submit_job,
)
from rota.client.sdk import streams
from rota.client.sdk.calls import Channel, ClientCall, ClientStream, PagedStream, RequestCall
from rota.client.sdk.operations import operation_call, operation_pages
from rota.control.schemas import (
    BreakerPage,
    BreakerResetResult,
    ClearResult,
    Health,
    LockPage,
    PauseResult,
    PoolList,
    Readiness,
    ResumeResult,
    SchedulerProcess,
    SchedulerStatus,
    ShutdownResult,
    StartFailureResetResult,
    TickResult,
)
from rota.direct.schemas import DirectResult, ReservationPage, ReservationView, ReserveResult
from rota.events.schemas import EventPage
from rota.graph.schemas import GraphDrawing, GraphView
from rota.groups.schemas import GroupPage, GroupProgress, GroupView
from rota.jobs.result_schemas import (
    BatchDryRunResult,
    BatchSubmitResult,
    CancelPlan,
    ClearPlan,
    EditResult,
    JobLogs,
    MoveResult,
    QueuePage,
    ReorderResult,
    RetryResult,
    RewindResult,
    SubmitResult,
)
from rota.jobs.schemas import JobPage, JobView, RunPage, RunView, WaitExplanation
from rota.retention.schemas import RetentionResultView, RetentionStatus
from rota.schedules.schemas import (
    ScheduleAddResult,
    ScheduleChangeResult,
    SchedulePage,
    ScheduleView,
    TriggerResult,
    UpcomingFires,
)
from rota.templates.schemas import TemplateChangeResult, TemplatePage, TemplateView
from rota.webhooks.schemas import (
    DeliveryDetail,
    DeliveryPage,
    WebhookPage,
    WebhookSecret,
    WebhookTestResult,
    WebhookView,
)
from rota.work import operations as work


async def status(channel: Channel) -> SchedulerStatus | SchedulerProcess:
    """Return the status of the scheduler: its mode, queue depth and pools, and the reason if nothing is running. While
    the store cannot be read, return a `SchedulerProcess` with the errors."""
    body = (await channel.transport.request(get_scheduler())).body
    try:
        return msgspec.json.decode(body, type=SchedulerStatus)
    except msgspec.ValidationError:
        return msgspec.json.decode(body, type=SchedulerProcess)


async def reset_breaker_or_starts(channel: Channel, key_or_job: str) -> BreakerResetResult | StartFailureResetResult:
    """Close a breaker, or clear the failed starts of a job."""
    body = (await channel.transport.request(reset_breaker(key_or_job))).body
    try:
        return msgspec.json.decode(body, type=BreakerResetResult)
    except msgspec.ValidationError:
        return msgspec.json.decode(body, type=StartFailureResetResult)


async def graph(
    channel: Channel,
    *,
    all: bool = False,  # noqa: A002
    job: str | None = None,
    max_depth: int | None = None,
) -> GraphView:
    """Return the dependency graph as nodes and edges: of active and blocked jobs, of all jobs, or around one job."""
    return await channel.request(get_graph(all=all, job=job, max_depth=max_depth), GraphView)


async def drawing(
    channel: Channel,
    *,
    all: bool = False,  # noqa: A002
    job: str | None = None,
    max_depth: int | None = None,
) -> GraphDrawing:
    """Return the dependency graph as text."""
    return await channel.request(get_graph(format="dag", all=all, job=job, max_depth=max_depth), GraphDrawing)


async def metrics(channel: Channel) -> str:
    """Return the metrics in the Prometheus text format."""
    return (await channel.transport.request(get_metrics())).body.decode()


class ClientMethods:
    """The methods that `Client` and `AsyncClient` share."""

    # Jobs.
    submit = RequestCall(submit_job, SubmitResult, uses_environment=True)
    submit_many = RequestCall(submit_batch, BatchSubmitResult, uses_environment=True)
    preview_submit = RequestCall(preview_submit, SubmitResult, uses_environment=True)
    preview_many = RequestCall(preview_batch, BatchDryRunResult, uses_environment=True)
    jobs = PagedStream(list_jobs, JobPage, lambda page: page.jobs)
    job = RequestCall(get_job, JobView)
    wait = ClientCall(streams.wait)
    why = RequestCall(explain_job, WaitExplanation)
    cancel = ClientCall(streams.cancel)
    preview_cancel = RequestCall(preview_cancel, CancelPlan)
    rewind = RequestCall(rewind_job, RewindResult)
    retry = RequestCall(retry_run, RetryResult)
    edit = RequestCall(edit_job, EditResult)
    move = RequestCall(move_job, MoveResult)

    # Logs, runs and events.
    logs = ClientStream(streams.logs)
    log_sizes = RequestCall(get_logs, JobLogs)
    runs = PagedStream(list_runs, RunPage, lambda page: page.runs)
    runs_of_job = PagedStream(list_runs_of_job, RunPage, lambda page: page.runs)
    run_of_job = RequestCall(get_run, RunView)
    events = ClientStream(streams.events)
    past_events = RequestCall(list_events, EventPage)

    # The queue.
    queue = PagedStream(list_queue, QueuePage, lambda page: page.jobs)
    reorder = RequestCall(reorder_queue, ReorderResult)
    locks = PagedStream(list_locks, LockPage, lambda page: page.locks)

    # Work items.
    work_items = operation_pages(work.list_items, lambda page: page.items)
    work_item = operation_call(work.show_item)
    sync_work = operation_call(work.sync_work)

    # Groups.
    groups = PagedStream(list_groups, GroupPage, lambda page: page.groups)
    add_group = RequestCall(add_group, GroupView)
    group = RequestCall(get_group, GroupView)
    wait_group = ClientCall(streams.wait_group)
    progress = RequestCall(get_progress, GroupProgress)
    close_group = RequestCall(close_group, GroupView)
    cancel_group = ClientCall(streams.cancel_group_and_wait)
    preview_cancel_group = RequestCall(preview_cancel_group, CancelPlan)
    rewind_group = RequestCall(rewind_group, RewindResult)

    # Templates.
    templates = PagedStream(list_templates, TemplatePage, lambda page: page.templates)
    add_template = RequestCall(add_template, TemplateChangeResult)
    template = RequestCall(get_template, TemplateView)
    change_template = RequestCall(change_template, TemplateChangeResult)
    replace_template = RequestCall(replace_template, TemplateChangeResult)
    archive_template = RequestCall(archive_template, TemplateView)
    unarchive_template = RequestCall(unarchive_template, TemplateView)

    # Schedules.
    schedules = PagedStream(list_schedules, SchedulePage, lambda page: page.schedules)
    add_schedule = RequestCall(add_schedule, ScheduleAddResult)
    schedule = RequestCall(get_schedule, ScheduleView)
    change_schedule = RequestCall(change_schedule, ScheduleChangeResult)
    remove_schedule = RequestCall(remove_schedule, ScheduleView)
    enable_schedule = RequestCall(enable_schedule, ScheduleView)
    disable_schedule = RequestCall(disable_schedule, ScheduleView)
    trigger = RequestCall(trigger_schedule, TriggerResult)
    next_fires = RequestCall(next_fires, UpcomingFires)

    # Webhooks.
    webhooks = PagedStream(list_webhooks, WebhookPage, lambda page: page.webhooks)
    add_webhook = RequestCall(add_webhook, WebhookView)
    webhook = RequestCall(get_webhook, WebhookView)
    webhook_secret = RequestCall(get_webhook_secret, WebhookSecret)
    remove_webhook = RequestCall(remove_webhook, WebhookView)
    enable_webhook = RequestCall(enable_webhook, WebhookView)
    disable_webhook = RequestCall(disable_webhook, WebhookView)
    rotate_webhook = RequestCall(rotate_webhook, WebhookView)
    test_webhook = RequestCall(send_test_webhook, WebhookTestResult)
    deliveries = PagedStream(list_deliveries, DeliveryPage, lambda page: page.deliveries)
    delivery = RequestCall(get_delivery, DeliveryDetail)
    redeliver = RequestCall(redeliver, DeliveryDetail)

    # Artifacts.
    put_artifact = RequestCall(put_artifact, ArtifactView, uses_cwd=True)
    artifacts = PagedStream(list_artifacts, ArtifactPage, lambda page: page.artifacts)
    artifact = RequestCall(get_artifact, ArtifactView, uses_cwd=True)
    remove_artifact = RequestCall(remove_artifact, ArtifactView, uses_cwd=True)

    # Direct executions.
    run = RequestCall(run_direct, DirectResult, uses_environment=True)
    reservations = PagedStream(list_reservations, ReservationPage, lambda page: page.reservations)
    reserve = RequestCall(add_reservation, ReserveResult, uses_environment=True)
    reservation = RequestCall(get_reservation, ReservationView)
    renew = RequestCall(renew_reservation, ReservationView)
    release = RequestCall(release_reservation, ReservationView)
    cancel_reservation = ClientCall(streams.cancel_reservation_and_wait)
    signal = RequestCall(signal_reservation, ReservationView)

    # The scheduler.
    status = ClientCall(status)
    pools = RequestCall(list_pools, PoolList)
    set_pool = RequestCall(set_pool, PoolList)
    breakers = PagedStream(list_breakers, BreakerPage, lambda page: page.breakers)
    reset_breaker = ClientCall(reset_breaker_or_starts)
    pause = RequestCall(pause, PauseResult)
    resume = RequestCall(resume, ResumeResult)
    clear = RequestCall(clear, ClearResult)
    preview_clear = RequestCall(preview_clear, ClearPlan)
    tick = RequestCall(tick, TickResult)
    graph = ClientCall(graph)
    drawing = ClientCall(drawing)
    gc = RequestCall(collect_garbage, RetentionResultView)
    gc_status = RequestCall(get_gc_status, RetentionStatus)
    reload = RequestCall(reload, NoneType)
    stop = RequestCall(stop, ShutdownResult)
    health = RequestCall(get_health, Health)
    ready = RequestCall(get_readiness, Readiness)
    metrics = ClientCall(metrics)
