"""Convert a workflow file to one request: a group and its jobs.

Everything that can be checked without the scheduler is checked here.
"""

from __future__ import annotations

import os.path
import re

from rota.naming import NAME_RULE, is_name
from rota.workflows.fields import (
    FIELDS,
    describe_kind,
    quote_value,
    read_list,
    read_map,
    read_text,
    refuse_unknown_keys,
    unknown_key_fault,
)
from rota.workflows.scalars import DocumentPath, Fault, InvalidWorkflow, is_empty

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    Json = dict[str, Any]

MAX_JOBS = 10_000
_DEPENDENCY_POLICIES = ("success", "finished", "failed")
_GROUP_FIELDS = {"name": (), "mode": ("parallel", "sequential"), "on_failure": ()}
_TOP_LEVEL_KEYS = ("group", "defaults", "jobs")
_MERGED_FIELDS = ("env", "params", "pools")
"""Fields of a job that are merged with the defaults by key."""
_JOB_ID = re.compile(r"job-[1-9][0-9]{0,17}")
_REQUEST_PATH = re.compile(r"\$\.jobs\[(\d+)\]")
_PATH_PART = re.compile(r"\.([^.\[]+)|\[(\d+)\]")


class Workflow:
    def __init__(self, data: Any, cwd: str) -> None:
        """Read the parsed file. The `cwd` of a job is relative to `cwd`. Raises InvalidWorkflow."""
        self._faults: list[Fault] = []
        self._cwd = cwd
        self._document = self._read_root(data)
        self.group: Json = self._try_read(self._read_group, self._document.get("group")) or {}
        """Group of the request."""
        self._defaults = self._read_fields(self._document.get("defaults"), ("defaults",))
        self.names: list[str] = list(self._read_job_map())
        """Local names of the jobs, in the order of the file."""
        self._known_names = frozenset(self.names)
        self.jobs: list[Json] = [job for name in self.names if (job := self._read_job(name)) is not None]
        if self._faults:
            raise InvalidWorkflow(self._faults)

    def document_path(self, request_path: str) -> DocumentPath:
        """Return the path in the file of a path in the request, as the scheduler reports it."""
        match = _REQUEST_PATH.match(request_path)
        if match is None or int(match[1]) >= len(self.names):
            return tuple(name for name, _ in _PATH_PART.findall(request_path) if name)[:2]
        name = self.names[int(match[1])]
        rest = tuple(int(index) if index else key for key, index in _PATH_PART.findall(request_path[match.end() :]))
        job, defaults = self._document["jobs"][name], self._document.get("defaults") or {}
        if rest and rest[0] not in job and rest[0] in defaults:
            return ("defaults", *rest)
        return ("jobs", name, *rest)

    def _try_read(self, read: Any, value: Any) -> Any:
        try:
            return read(value)
        except Fault as fault:
            self._faults.append(fault)
            return None

    def _read_root(self, data: Any) -> Json:
        if is_empty(data):
            raise InvalidWorkflow([Fault((), "the file is empty; a workflow needs jobs: with at least one job")])
        if not isinstance(data, dict):
            raise InvalidWorkflow([Fault((), f"a workflow is a map with jobs:, not {describe_kind(data)}")])
        self._faults += [unknown_key_fault(name, _TOP_LEVEL_KEYS, ()) for name in data if name not in _TOP_LEVEL_KEYS]
        return data

    def _read_group(self, value: Any) -> Json:
        if is_empty(value):
            return {}
        fields = read_map(value, ("group",))
        refuse_unknown_keys(fields, _GROUP_FIELDS, ("group",))
        group = {name: read_text(text, ("group", name)) for name, text in fields.items() if not is_empty(text)}
        for name, choices in _GROUP_FIELDS.items():
            if choices and group.get(name, choices[0]) not in choices:
                raise Fault(("group", name), f"expected {' or '.join(choices)}, not {group[name]!r}")
        return group

    def _read_job_map(self) -> Mapping[str, Any]:
        jobs = self._document.get("jobs")
        if not isinstance(jobs, dict) or not jobs:
            advice = "write the jobs with their names: jobs: {build: {command: [make]}}"
            problem = (
                "a workflow needs jobs"
                if is_empty(jobs) or jobs == {}
                else f"expected a map, not {describe_kind(jobs)}"
            )
            self._faults.append(Fault(("jobs",), f"{problem}; {advice}"))
            return {}
        if len(jobs) > MAX_JOBS:
            self._faults.append(Fault(("jobs",), f"{len(jobs)} jobs; the maximum per file is {MAX_JOBS}"))
            return {}
        for name in jobs:
            if not is_name(name) or ":" in name or name.startswith("job-"):
                rule = f"use {NAME_RULE}, without :, and not in the form of a job id"
                self._faults.append(Fault(("jobs", name), f"invalid job name {quote_value(name)}; {rule}"))
        return jobs

    def _read_fields(self, value: Any, path: DocumentPath) -> Json:
        """Read the valid fields and record a fault for every other one."""
        if is_empty(value):
            return {}
        if not isinstance(value, dict):
            self._faults.append(Fault(path, f"a job is a map with a command or a template, not {describe_kind(value)}"))
            return {}
        fields: Json = {}
        for name, raw in value.items():
            read = FIELDS.get(name)
            try:
                if read is None:
                    raise unknown_key_fault(name, FIELDS, path)
                if not is_empty(raw):
                    fields[name] = read(raw, (*path, name))
            except Fault as fault:
                self._faults.append(fault)
        return fields

    def _read_job(self, name: str) -> Json | None:
        path = ("jobs", name)
        faults_before, raw = len(self._faults), self._document["jobs"][name]
        own = self._read_fields(raw, path)
        job = _merge_job(self._defaults, own)
        if len(self._faults) == faults_before and "command" not in job and "template" not in job:
            is_typed = isinstance(raw, dict) or is_empty(raw)
            message = "the job has neither a command nor a template; write command: [make, test]"
            self._faults += [Fault(path, message)] if is_typed else []
        if "after" in job:
            start: DocumentPath = (*path, "after") if "after" in own else ("defaults", "after")
            job["after"] = self._read_dependencies(job["after"], start, name)
        if "webhook" in job:
            job["webhooks"] = [*job.get("webhooks", ()), job.pop("webhook")]
        if "cwd" in job:
            job["cwd"] = os.path.abspath(os.path.join(self._cwd, job["cwd"]))  # noqa: PTH100, PTH118 - keeps links
        return {"local": name, "name": name, **job}

    def _read_dependencies(self, value: Any, path: DocumentPath, name: str) -> list[Json]:
        edges = []
        # A job that every job depends on by default does not depend on itself.
        is_shared = path[0] == "defaults"
        for n, item in enumerate([value] if isinstance(value, dict) else read_list(value, path)):
            edge = self._try_read(lambda raw, at=(*path, n): self._read_dependency(raw, at), item)
            if edge is not None and not (is_shared and edge["job"] == name):
                edges.append(edge)
        return edges

    def _read_dependency(self, value: Any, path: DocumentPath) -> Json:
        if isinstance(value, dict):
            refuse_unknown_keys(value, ("job", "policy"), path)
            if "job" not in value:
                raise Fault(
                    path, "the dependency names no job; write {job: build, policy: finished}, or build:finished"
                )
            job = read_text(value["job"], (*path, "job"))
            policy = read_text(value.get("policy", "success"), (*path, "policy"))
        else:
            job, _, policy = read_text(value, path).partition(":")
            policy = policy or "success"
        if policy not in _DEPENDENCY_POLICIES:
            raise Fault(path, f"unknown policy {policy!r}; known policies: {', '.join(_DEPENDENCY_POLICIES)}")
        if job not in self._known_names and not _JOB_ID.fullmatch(job):
            raise Fault(path, f"no job is called {job!r}; {self._suggest_job(job)}")
        return {"job": job, "policy": policy}

    def _suggest_job(self, job: str) -> str:
        from difflib import get_close_matches

        near = get_close_matches(job, self.names[:1000], n=1, cutoff=0.5)
        return f"did you mean {near[0]!r}?" if near else "name a job of this file, or an id such as job-12"


def _merge_job(defaults: Json, own: Json) -> Json:
    """Merge the defaults into a job. The fields of the job win, and its command replaces a default template."""
    merged = {**defaults, **own}
    for name in _MERGED_FIELDS:
        if name in defaults and name in own:
            merged[name] = {**defaults[name], **own[name]}
    if "command" in own and "template" not in own:
        merged.pop("template", None)
    if "template" in own and "command" not in own:
        merged.pop("command", None)
    return merged
