"""The methods of both clients, each with its request builder and its response type."""

from __future__ import annotations

from types import NoneType

from rota.client.requests.artifact import get_artifact, list_artifacts, put_artifact, remove_artifact
from rota.client.requests.event import list_events
from rota.client.requests.group import (
    add_group,
    close_group,
    get_group,
    get_progress,
    list_groups,
    preview_cancel_group,
    rewind_group,
)
from rota.client.requests.job import (
    edit_job,
    explain_job,
    get_job,
    list_jobs,
    move_job,
    preview_batch,
    preview_cancel,
    preview_submit,
    rewind_job,
    submit_batch,
    submit_job,
)
from rota.client.requests.log import get_logs
from rota.client.requests.queue import list_locks, list_queue, reorder_queue
from rota.client.requests.reservation import (
    add_reservation,
    get_reservation,
    list_reservations,
    release_reservation,
    renew_reservation,
    run_direct,
    signal_reservation,
)
from rota.client.requests.run import get_run, list_runs, list_runs_of_job, retry_run
from rota.client.requests.schedule import (
    add_schedule,
    change_schedule,
    disable_schedule,
    enable_schedule,
    get_schedule,
    list_schedules,
    next_fires,
    remove_schedule,
    trigger_schedule,
)
from rota.client.requests.scheduler import (
    clear,
    collect_garbage,
    get_gc_status,
    health,
    list_breakers,
    list_pools,
    pause,
    preview_clear,
    ready,
    reload,
    resume,
    set_pool,
    stop,
    tick,
)
from rota.client.requests.template import (
    add_template,
    archive_template,
    change_template,
    get_template,
    list_templates,
    replace_template,
    unarchive_template,
)
from rota.client.requests.webhook import (
    add_webhook,
    disable_webhook,
    enable_webhook,
    get_delivery,
    get_webhook,
    get_webhook_secret,
    list_deliveries,
    list_webhooks,
    redeliver,
    remove_webhook,
    rotate_webhook,
    send_test_webhook,
)
from rota.sdk import streams, variants
from rota.sdk.calls import ClientCall, ClientStream, PagedStream, RequestCall
from rota.wire.artifact import ArtifactPage, ArtifactView
from rota.wire.breaker import BreakerPage
from rota.wire.cancel import CancelPlan, ClearPlan
from rota.wire.control import ClearResult, PauseResult, ResumeResult
from rota.wire.edit import EditResult
from rota.wire.event import EventPage
from rota.wire.gc import RetentionResultView, RetentionStatus
from rota.wire.group import GroupPage, GroupView
from rota.wire.health import Health, Readiness
from rota.wire.job import JobPage, JobView, RunView, WaitExplanation
from rota.wire.lock import LockPage
from rota.wire.log import JobLogs
from rota.wire.progress import GroupProgress
from rota.wire.queue import MoveResult, QueuePage, ReorderResult
from rota.wire.reservation import DirectResult, ReservationPage, ReservationView, ReserveResult
from rota.wire.retry import RetryResult
from rota.wire.rewind import RewindResult
from rota.wire.run import RunPage
from rota.wire.schedule import (
    ScheduleAddResult,
    ScheduleChangeResult,
    SchedulePage,
    ScheduleView,
    TriggerResult,
    UpcomingFires,
)
from rota.wire.scheduler import PoolList, ShutdownResult
from rota.wire.submit import BatchDryRunResult, BatchSubmitResult, SubmitResult
from rota.wire.template import TemplateChangeResult, TemplatePage, TemplateView
from rota.wire.tick import TickResult
from rota.wire.webhook import DeliveryDetail, DeliveryPage, WebhookPage, WebhookSecret, WebhookTestResult, WebhookView


class ClientMethods:
    # Jobs.
    """The methods that `Client` and `AsyncClient` share."""

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
    status = ClientCall(variants.status)
    pools = RequestCall(list_pools, PoolList)
    set_pool = RequestCall(set_pool, PoolList)
    breakers = PagedStream(list_breakers, BreakerPage, lambda page: page.breakers)
    reset_breaker = ClientCall(variants.reset_breaker_or_starts)
    pause = RequestCall(pause, PauseResult)
    resume = RequestCall(resume, ResumeResult)
    clear = RequestCall(clear, ClearResult)
    preview_clear = RequestCall(preview_clear, ClearPlan)
    tick = RequestCall(tick, TickResult)
    graph = ClientCall(variants.graph)
    drawing = ClientCall(variants.drawing)
    gc = RequestCall(collect_garbage, RetentionResultView)
    gc_status = RequestCall(get_gc_status, RetentionStatus)
    reload = RequestCall(reload, NoneType)
    stop = RequestCall(stop, ShutdownResult)
    health = RequestCall(health, Health)
    ready = RequestCall(ready, Readiness)
    metrics = ClientCall(variants.metrics)
