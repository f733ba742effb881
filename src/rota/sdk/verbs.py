"""Every method of both clients: what builds its request, and what its answer is."""

from __future__ import annotations

from types import NoneType

from rota.client.ask.artifact import get_artifact, list_artifacts, put_artifact, remove_artifact
from rota.client.ask.event import list_events
from rota.client.ask.group import add_group, close_group, get_group, get_progress, list_groups, rewind_group
from rota.client.ask.job import (
    edit_job,
    get_job,
    list_jobs,
    move_job,
    rehearse_batch,
    rewind_job,
    submit_batch,
    submit_job,
    why_job,
)
from rota.client.ask.log import get_logs
from rota.client.ask.queue import list_locks, list_queue, reorder_queue
from rota.client.ask.run import get_run, list_runs, list_runs_of_job, retry_run
from rota.client.ask.schedule import (
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
from rota.client.ask.scheduler import (
    clear,
    collect,
    get_collection,
    health,
    list_breakers,
    list_pools,
    pause,
    ready,
    reload,
    resume,
    set_pool,
    stop,
    tick,
)
from rota.client.ask.slot import get_slot, list_slots, release_slot, renew_slot, reserve_slot, run_direct, signal_slot
from rota.client.ask.template import (
    add_template,
    archive_template,
    change_template,
    get_template,
    list_templates,
    replace_template,
    unarchive_template,
)
from rota.client.ask.webhook import (
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
    try_webhook,
)
from rota.sdk import choice, course
from rota.sdk.verb import Course, Deed, Pages, Verb
from rota.wire.artifact import PutForm, PutsForm
from rota.wire.breaker import BreakersForm
from rota.wire.control import ClearForm, PauseForm, ResumeForm
from rota.wire.edit import EditForm
from rota.wire.event import EventsForm
from rota.wire.gc import CollectionForm, GcForm
from rota.wire.group import GroupForm, GroupsForm
from rota.wire.health import HealthForm, ReadyForm
from rota.wire.job import JobForm, JobsForm, RunForm, WhyForm
from rota.wire.lock import LocksForm
from rota.wire.log import LogsForm
from rota.wire.progress import ProgressForm
from rota.wire.queue import OrderForm, PlaceForm, QueuePageForm
from rota.wire.retry import RetryForm
from rota.wire.rewind import RewindForm
from rota.wire.run import RunsForm
from rota.wire.schedule import (
    FiresForm,
    ScheduleAddedForm,
    ScheduleChangedForm,
    ScheduleForm,
    SchedulesForm,
    TriggerForm,
)
from rota.wire.scheduler import PoolsForm
from rota.wire.slot import DirectForm, ReservedForm, SlotForm, SlotsForm
from rota.wire.submit import BatchForm, RehearsalForm, SubmitForm
from rota.wire.template import TemplateForm, TemplatesForm, TemplateStoredForm
from rota.wire.tick import TickForm
from rota.wire.webhook import (
    DeliveriesForm,
    MessageForm,
    SecretForm,
    WebhookAddedForm,
    WebhookForm,
    WebhooksForm,
    WebhookTestForm,
)


class Verbs:
    # Jobs.
    submit = Verb(submit_job, SubmitForm, has_place=True)
    submit_many = Verb(submit_batch, BatchForm, has_place=True)
    rehearse = Verb(rehearse_batch, RehearsalForm, has_place=True)
    jobs = Pages(list_jobs, JobsForm, lambda page: page.jobs)
    job = Verb(get_job, JobForm)
    wait = Deed(course.wait)
    why = Verb(why_job, WhyForm)
    cancel = Deed(course.cancel)
    rewind = Verb(rewind_job, RewindForm)
    retry = Verb(retry_run, RetryForm)
    edit = Verb(edit_job, EditForm)
    move = Verb(move_job, PlaceForm)

    # What they write, and what became of them.
    logs = Course(course.logs)
    log_sizes = Verb(get_logs, LogsForm)
    runs = Pages(list_runs, RunsForm, lambda page: page.runs)
    runs_of_job = Pages(list_runs_of_job, RunsForm, lambda page: page.runs)
    run_of_job = Verb(get_run, RunForm)
    events = Course(course.events)
    past_events = Verb(list_events, EventsForm)

    # The queue.
    queue = Pages(list_queue, QueuePageForm, lambda page: page.jobs)
    reorder = Verb(reorder_queue, OrderForm)
    locks = Pages(list_locks, LocksForm, lambda page: page.locks)

    # Groups.
    groups = Pages(list_groups, GroupsForm, lambda page: page.groups)
    add_group = Verb(add_group, GroupForm)
    group = Verb(get_group, GroupForm)
    wait_group = Deed(course.wait_group)
    progress = Verb(get_progress, ProgressForm)
    close_group = Verb(close_group, GroupForm)
    cancel_group = Deed(course.cancel_whole_group)
    rewind_group = Verb(rewind_group, RewindForm)

    # Templates.
    templates = Pages(list_templates, TemplatesForm, lambda page: page.templates)
    add_template = Verb(add_template, TemplateStoredForm)
    template = Verb(get_template, TemplateForm)
    change_template = Verb(change_template, TemplateStoredForm)
    replace_template = Verb(replace_template, TemplateStoredForm)
    archive_template = Verb(archive_template, TemplateForm)
    unarchive_template = Verb(unarchive_template, TemplateForm)

    # Schedules.
    schedules = Pages(list_schedules, SchedulesForm, lambda page: page.schedules)
    add_schedule = Verb(add_schedule, ScheduleAddedForm)
    schedule = Verb(get_schedule, ScheduleForm)
    change_schedule = Verb(change_schedule, ScheduleChangedForm)
    remove_schedule = Verb(remove_schedule, ScheduleForm)
    enable_schedule = Verb(enable_schedule, ScheduleForm)
    disable_schedule = Verb(disable_schedule, ScheduleForm)
    trigger = Verb(trigger_schedule, TriggerForm)
    next_fires = Verb(next_fires, FiresForm)

    # Webhooks.
    webhooks = Pages(list_webhooks, WebhooksForm, lambda page: page.webhooks)
    add_webhook = Verb(add_webhook, WebhookAddedForm)
    webhook = Verb(get_webhook, WebhookForm)
    webhook_secret = Verb(get_webhook_secret, SecretForm)
    remove_webhook = Verb(remove_webhook, WebhookForm)
    enable_webhook = Verb(enable_webhook, WebhookForm)
    disable_webhook = Verb(disable_webhook, WebhookForm)
    rotate_webhook = Verb(rotate_webhook, WebhookForm)
    test_webhook = Verb(try_webhook, WebhookTestForm)
    deliveries = Pages(list_deliveries, DeliveriesForm, lambda page: page.deliveries)
    delivery = Verb(get_delivery, MessageForm)
    redeliver = Verb(redeliver, MessageForm)

    # Artifacts.
    put_artifact = Verb(put_artifact, PutForm, has_cwd=True)
    artifacts = Pages(list_artifacts, PutsForm, lambda page: page.artifacts)
    artifact = Verb(get_artifact, PutForm, has_cwd=True)
    remove_artifact = Verb(remove_artifact, PutForm, has_cwd=True)

    # Direct executions.
    run = Verb(run_direct, DirectForm, has_place=True)
    slots = Pages(list_slots, SlotsForm, lambda page: page.slots)
    reserve = Verb(reserve_slot, ReservedForm, has_place=True)
    slot = Verb(get_slot, SlotForm)
    renew = Verb(renew_slot, SlotForm)
    release = Verb(release_slot, SlotForm)
    cancel_slot = Deed(course.cancel_direct)
    signal = Verb(signal_slot, SlotForm)

    # The scheduler.
    status = Deed(choice.status)
    pools = Verb(list_pools, PoolsForm)
    set_pool = Verb(set_pool, PoolsForm)
    breakers = Pages(list_breakers, BreakersForm, lambda page: page.breakers)
    reset_breaker = Deed(choice.reset)
    pause = Verb(pause, PauseForm)
    resume = Verb(resume, ResumeForm)
    clear = Verb(clear, ClearForm)
    tick = Verb(tick, TickForm)
    graph = Deed(choice.graph)
    drawing = Deed(choice.drawing)
    collect = Verb(collect, CollectionForm)
    collection = Verb(get_collection, GcForm)
    reload = Verb(reload, NoneType)
    stop = Verb(stop, NoneType)
    health = Verb(health, HealthForm)
    ready = Verb(ready, ReadyForm)
    metrics = Deed(choice.metrics)
