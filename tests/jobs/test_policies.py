"""Policies of a job, with their sources."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from rota.ids import JobId
from rota.jobs.edit import EditRequest, edit
from rota.jobs.queries import show_job_with_policies
from rota.kernel.breaker import BreakerPolicy
from rota.kernel.retry import RetryPolicies, RetryPolicy
from tests.harness import Scheduler

FLOW_RETRY_DELAY = "30s times 2 each, at most 5m, jitter 10%"


def policies(scheduler: Scheduler, job: JobId) -> dict[str, tuple[str, str]]:
    shown = show_job_with_policies(scheduler.reader, job, scheduler.view_context).policies
    assert shown is not None
    return {policy.name: (policy.value, policy.source) for policy in shown}


def test_flow_provides_pool_and_five_retries(scheduler: Scheduler) -> None:
    scheduler.set_pools(**{"global": 1, "flow/*": 1})
    shown_policies = policies(scheduler, scheduler.submit(flow="review", phase="p"))
    assert shown_policies["retry"] == ("5 retries", "flow default; built-in (retry.fleet.max_retries)")
    assert shown_policies["retry_delay"] == (FLOW_RETRY_DELAY, "flow default; built-in (retry.fleet)")
    assert shown_policies["pool flow/review"] == ("1 of 1", "flow default; size: built-in (pools.flow/*)")
    assert shown_policies["lock phase/p/review"] == ("exclusive", "phase default")


def test_type_provides_only_a_breaker(scheduler: Scheduler) -> None:
    shown_policies = policies(scheduler, scheduler.submit(type="story"))
    assert shown_policies["breaker type/story"] == (
        "opens for 10m after 20 failed runs within 10m",
        "type default; built-in (breaker.failures, breaker.window, breaker.cool_down)",
    )
    assert shown_policies["retry"] == ("no retries", "built-in")
    assert shown_policies["timeout"] == ("none", "built-in")


def test_options_are_named_as_source(scheduler: Scheduler) -> None:
    scheduler.set_pools(**{"global": 1, "resource/gpu": 4})
    job = scheduler.submit(flow="a", retries=1, timeout="5m", pools={"resource/gpu": 2}, locks=["repo:shared"])
    shown_policies = policies(scheduler, job)
    assert shown_policies["retry"] == ("1 retry", "option")
    assert shown_policies["retry_delay"] == (FLOW_RETRY_DELAY, "flow default; built-in (retry.fleet)")
    assert shown_policies["timeout"] == ("5m", "option")
    assert shown_policies["pool resource/gpu"] == ("2 of 4", "option; size: configuration (pools.resource/gpu)")
    assert shown_policies["lock repo"] == ("shared", "option")


def test_edited_policy_has_source_option(scheduler: Scheduler) -> None:
    scheduler.submit()
    job = scheduler.submit(flow="a")
    scheduler.run_request(lambda tx: edit(tx, job, EditRequest(retries=2), actor="ann"))
    shown_policies = policies(scheduler, job)
    assert shown_policies["retry"] == ("2 retries", "option")
    assert shown_policies["retry_delay"] == (FLOW_RETRY_DELAY, "flow default; built-in (retry.fleet)")
    scheduler.run_request(lambda tx: edit(tx, job, EditRequest(retry="default", priority=0), actor="ann"))
    shown_policies = policies(scheduler, job)
    assert shown_policies["retry"] == ("3 retries", "option; built-in (retry.max_retries)")
    assert shown_policies["priority"] == ("0", "option")


def test_changed_breaker_has_source_configuration(scheduler: Scheduler) -> None:
    job = scheduler.submit(target="web")
    breaker = BreakerPolicy(dispatch_failures=5, failures=2, window=timedelta(minutes=1))
    context = msgspec.structs.replace(scheduler.view_context, breaker_policy=breaker)
    shown = show_job_with_policies(scheduler.reader, job, context).policies
    assert shown is not None
    shown_policies = {policy.name: (policy.value, policy.source) for policy in shown}
    assert shown_policies["breaker"][1] == "configuration (breaker.dispatch_failures)"
    assert shown_policies["breaker target/web"] == (
        "opens for 10m after 2 failed runs within 1m",
        "target default; configuration (breaker.failures, breaker.window)",
    )


def test_configured_and_built_in_retry_values_have_different_sources(scheduler: Scheduler) -> None:
    retry = RetryPolicies(
        default=RetryPolicy(base=timedelta(seconds=7)),
        named={
            "fleet": RetryPolicy(max_retries=1, base=timedelta(seconds=30)),
            "quota": RetryPolicy(base=timedelta(seconds=7), cap=timedelta(hours=1)),
        },
    )
    scheduler.configure(retry=retry)
    flow_policies = policies(scheduler, scheduler.submit(flow="a"))
    assert flow_policies["retry"] == ("1 retry", "flow default; configuration (retry.fleet.max_retries)")
    assert flow_policies["retry_delay"][1] == "flow default; built-in (retry.fleet)"
    counted = policies(scheduler, scheduler.submit(retries=2))
    assert (counted["retry"][1], counted["retry_delay"][1]) == ("option", "configuration (retry.base)")
    named = policies(scheduler, scheduler.submit(retry="quota"))
    assert named["retry_delay"][1] == "option; configuration (retry.base, retry.quota.cap)"


def test_start_conditions_and_webhooks_have_a_source(scheduler: Scheduler) -> None:
    scheduler.set_pools(**{"global": 1})
    job = scheduler.submit(
        needs=["file:/plan.md", "merge_sentinel:x"],
        delay="10m",
        priority=3,
        unique="card",
        webhooks=["https://198.51.100.7/hook?token=hunter2"],
    )
    shown_policies = policies(scheduler, job)
    assert shown_policies["need file:/plan.md"] == ("wait while no job produces it", "file default; built-in")
    assert shown_policies["need merge_sentinel:x"] == (
        "block while no job produces it",
        "merge_sentinel default; built-in",
    )
    assert shown_policies["priority"] == ("3", "option")
    assert shown_policies["delay"][0].startswith("not before ")
    assert shown_policies["delay"][1] == "option"
    assert shown_policies["unique"] == (
        "card; until this job ends, a submit with this key returns it and stores nothing",
        "option",
    )
    assert shown_policies["webhook"] == (
        "https://198.51.100.7/hook?*** for job.run.completed, job.run.failed, job.run.skipped",
        "option; events: built-in",
    )
    chosen = policies(scheduler, scheduler.submit(needs=["file:/plan.md"], missing_producer="block", priority=0))
    assert chosen["need file:/plan.md"] == ("block while no job produces it", "option")
    assert chosen["priority"] == ("0", "option")
    plain = policies(scheduler, scheduler.submit())
    assert (plain["priority"], plain["delay"]) == (("0", "built-in"), ("none", "built-in"))
