"""Preparation of a submit, before its turn: everything that waits for the file system, git or a resolver.

    expand        templates, in a reader thread                            (templates/expand.py)
    workspaces    git, for worktrees and patches                           (worktrees/preparation.py)
    warnings      missing programs and directories, hosts without address  (jobs/submit.py, webhooks/commands.py)
    preflight     repositories, pinned heads and artifacts                 (jobs/preflight.py)

A file system that does not answer gives a warning where nothing else depends on it, and otherwise refuses the submit.
Blocking calls hold a key for each directory, so a dead mount holds one thread, and delays only submits that name it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from rota.blocking import BlockingCalls
from rota.engine.calls import ReadStore
from rota.engine.fact_cache import FactCache
from rota.engine.transaction import Settings, Transaction
from rota.errors import ServiceUnavailable, StoreUnavailable, error_path
from rota.jobs.preflight import EMPTY_PREFLIGHT, Preflight, needs_probe, probed_directories, run_preflight
from rota.jobs.submission import DefaultEnvironment, GroupRequest, JobOrigin, Submission
from rota.jobs.submit import AcceptedSubmit, Programs, SubmitOutcome, collect_programs, find_missing_programs, submit
from rota.kernel.job import WorkspaceSpec
from rota.probe.port import Probe
from rota.templates.expand import ExpandedSubmit, blame_template, expand_all
from rota.webhooks.commands import warn_of_unresolvable_hosts
from rota.worktrees.preparation import GIT_TIMEOUT, link_inputs, needs_workspace, prepare_workspaces

Workspaces = Sequence[WorkspaceSpec | None]

SINGLE_JOB_PATHS = error_path("", replaced_prefix=".jobs[0]")
"""Error paths for a request that is itself the only job."""
_CHECK_TIMEOUT = 2.0
"""Seconds to check a program and its directory before a submit."""
_PROBE_TIMEOUT = 20.0
"""Seconds to probe repositories and artifacts."""
_CACHE_SECONDS = 1.0
_MAX_CACHE_ENTRIES = 1000


class PreparedSubmit(NamedTuple):
    operation: Callable[[Transaction], SubmitOutcome]
    """Submit, for the engine's turn."""
    workspaces: Workspaces
    """Workspace of each job; empty if no job has one."""


class SubmitPreparer:
    """Preparer of submits, on the event loop only."""

    def __init__(
        self,
        *,
        home: str,
        read: ReadStore,
        settings: Callable[[], Settings],
        probe: Probe,
        fact_cache: FactCache,
        blocking_calls: BlockingCalls,
    ) -> None:
        self._home = home
        self._read = read
        self._settings = settings
        self._probe = probe
        self._fact_cache = fact_cache
        self._blocking_calls = blocking_calls
        self._missing_cache: dict[Programs, tuple[float, list[str]]] = {}
        """Missing programs, kept for a moment: scripts submit the same program a thousand times."""

    async def prepare(
        self,
        members: Sequence[Submission],
        *,
        default_environment: DefaultEnvironment,
        actor: str,
        group: GroupRequest | None = None,
        stores_inputs: bool = True,
        is_legacy: bool = False,
    ) -> PreparedSubmit:
        """Prepare the submit of these jobs. A dry run passes `stores_inputs=False`."""
        expanded = await self._expand_templates(members)
        if is_legacy:
            expanded = _mark_legacy(expanded)
        members = expanded.submissions
        workspaces = await self._prepare_workspaces(members, default_environment, stores_inputs=stores_inputs)
        warnings = [*expanded.warnings, *await self._find_missing_programs(members, default_environment)]
        if urls := _webhook_urls(members):
            warnings += await warn_of_unresolvable_hosts(urls, self._settings().webhooks)
        operation = partial(
            submit,
            submissions=members,
            default_environment=default_environment,
            actor=actor,
            warnings=warnings,
            preflight=await self._run_preflight(members, default_environment),
            workspaces=workspaces,
            origins=expanded.origins,
            group_request=group,
        )
        return PreparedSubmit(operation, workspaces)

    async def run_preflight(
        self, members: Sequence[Submission], default_environment: DefaultEnvironment, *, stores_inputs: bool = True
    ) -> tuple[Preflight, Workspaces]:
        """Run all probes for jobs whose templates are expanded."""
        workspaces = await self._prepare_workspaces(members, default_environment, stores_inputs=stores_inputs)
        return await self._run_preflight(members, default_environment), workspaces

    async def collect_warnings(
        self, request: Submission, job: Submission, default_environment: DefaultEnvironment
    ) -> list[str]:
        """Return warnings about a job that is created later from the request. Refuse a job that could not be created
        now. A file system that does not answer gives a warning, because it may answer later."""
        try:
            with SINGLE_JOB_PATHS, blame_template(request):
                preflight, _ = await self.run_preflight([job], default_environment, stores_inputs=False)
                if preflight.refusal is not None:
                    raise preflight.refusal
        except StoreUnavailable:
            raise
        except ServiceUnavailable:
            return ["the file system does not answer, so the files and branches that the job needs were not checked"]
        return await self._find_missing_programs([job], default_environment)

    async def link_inputs(self, outcome: SubmitOutcome, workspaces: Workspaces) -> None:
        """Link the input patches of the submitted jobs into their directories."""
        if workspaces and isinstance(outcome, AcceptedSubmit):
            await asyncio.to_thread(link_inputs, self._home, outcome.jobs, workspaces)

    async def _expand_templates(self, members: Sequence[Submission]) -> ExpandedSubmit:
        """Expand the templates of the jobs. Schemas are checked in a reader thread, not in the engine's."""
        if not any(member.template is not None for member in members):
            return ExpandedSubmit(submissions=members, origins=(), warnings=[])
        return await self._read(partial(expand_all, submissions=members))

    async def _prepare_workspaces(
        self, members: Sequence[Submission], default_environment: DefaultEnvironment, *, stores_inputs: bool
    ) -> Workspaces:
        """Query git for the jobs that request a worktree or a patch."""
        if not any(map(needs_workspace, members)):
            return ()
        run = partial(prepare_workspaces, members, default_environment, self._home, stores_inputs=stores_inputs)
        keys = {("git", member.cwd or default_environment.cwd) for member in members if needs_workspace(member)}
        try:
            return await self._blocking_calls.run(keys, GIT_TIMEOUT + _CHECK_TIMEOUT, run)
        except TimeoutError:
            message = "git does not answer in the working directory; nothing was stored, so submit again later"
            raise ServiceUnavailable(message) from None

    async def _run_preflight(self, members: Sequence[Submission], default_environment: DefaultEnvironment) -> Preflight:
        """Probe what the jobs name outside the store. The submit is refused if the file system does not answer, because
        then nothing is known."""
        if not any(needs_probe(member) for member in members):
            return EMPTY_PREFLIGHT
        paths, probe_number = self._settings().artifact_paths, self._fact_cache.begin_probe()
        run = partial(run_preflight, members, default_environment, self._probe, paths, probe_number=probe_number)
        keys = {
            ("preflight", directory)
            for member in members
            for directory in probed_directories(member, default_environment)
        }
        try:
            return await self._blocking_calls.run(keys, _PROBE_TIMEOUT, run)
        except TimeoutError:
            message = "the file system does not answer; nothing was stored, so submit again later"
            raise ServiceUnavailable(message) from None

    async def _find_missing_programs(
        self, members: Sequence[Submission], default_environment: DefaultEnvironment
    ) -> list[str]:
        """Return warnings about missing programs. A file system that does not answer does not fail the submit."""
        programs, cache = collect_programs(members, default_environment), self._missing_cache
        if programs not in cache or time.monotonic() - cache[programs][0] > _CACHE_SECONDS:
            try:
                keys = {("program", cwd) for cwd, _, _ in programs}
                missing = await self._blocking_calls.run(keys, _CHECK_TIMEOUT, partial(find_missing_programs, programs))
            except TimeoutError:
                return ["the file system does not answer, so the program and the working directory were not checked"]
            if len(cache) >= _MAX_CACHE_ENTRIES:
                cache.clear()
            cache[programs] = time.monotonic(), missing
        return cache[programs][1]


def _mark_legacy(expanded: ExpandedSubmit) -> ExpandedSubmit:
    origins = expanded.origins or [JobOrigin()] * len(expanded.submissions)
    legacy = [msgspec.structs.replace(origin, is_legacy=True) for origin in origins]
    return msgspec.structs.replace(expanded, origins=legacy)


def _webhook_urls(members: Sequence[Submission]) -> dict[str, str]:
    """Return the webhook URLs of the jobs, each with its first path in the request."""
    urls: dict[str, str] = {}
    for n, member in enumerate(members):
        for m, url in enumerate(member.webhooks):
            urls.setdefault(url, f".jobs[{n}].webhooks[{m}]")
    return urls
