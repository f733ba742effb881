"""Every method of both clients: what builds its request, and what its answer is."""

from __future__ import annotations

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
from rota.sdk import course
from rota.sdk.verb import Course, Deed, Pages, Verb
from rota.wire.edit import EditForm
from rota.wire.event import EventsForm
from rota.wire.group import GroupForm, GroupsForm
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
from rota.wire.slot import DirectForm, ReservedForm, SlotForm, SlotsForm
from rota.wire.submit import BatchForm, RehearsalForm, SubmitForm
from rota.wire.template import TemplateForm, TemplatesForm, TemplateStoredForm


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

    # Direct executions.
    run = Verb(run_direct, DirectForm, has_place=True)
    slots = Pages(list_slots, SlotsForm, lambda page: page.slots)
    reserve = Verb(reserve_slot, ReservedForm, has_place=True)
    slot = Verb(get_slot, SlotForm)
    renew = Verb(renew_slot, SlotForm)
    release = Verb(release_slot, SlotForm)
    cancel_slot = Deed(course.cancel_direct)
    signal = Verb(signal_slot, SlotForm)
