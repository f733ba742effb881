"""A document as one request: a group and its jobs. What is wrong by itself is found here, before anyone is asked."""

from __future__ import annotations

import os.path
import re

from rota.names import NAME_RULE, is_name
from rota.workflow.fault import Fault, Path, Unusable
from rota.workflow.field import FIELDS, entries, kind, refuse_others, shown, table, text, unknown
from rota.workflow.scalar import is_nothing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    Json = dict[str, Any]

MOST_JOBS = 10_000
_POLICIES = ("success", "finished", "failed")
_GROUP = {"name": (), "mode": ("parallel", "sequential"), "on_failure": ()}
_KEYS = ("group", "defaults", "jobs")
_BY_KEY = ("env", "params", "pools")
"""Where a job has its own beside the shared ones, unless it names the same."""
_ID = re.compile(r"job-[1-9][0-9]{0,17}")
_REQUEST_PATH = re.compile(r"\$\.jobs\[(\d+)\]")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]")


class Workflow:
    def __init__(self, data: Any, cwd: str) -> None:
        """`cwd` is what the jobs' own directories start from. Raises Unusable."""
        self._faults: list[Fault] = []
        self._cwd = cwd
        self._document = self._top(data)
        self.group: Json = self._tried(self._group, self._document.get("group")) or {}
        """As the request has it."""
        self._defaults = self._fields(self._document.get("defaults"), ("defaults",))
        self.names: list[str] = list(self._named_jobs())
        """The local names, in the order of the file."""
        self._known = frozenset(self.names)
        self.jobs: list[Json] = [job for name in self.names if (job := self._job(name)) is not None]
        if self._faults:
            raise Unusable(self._faults)

    def path_of(self, asked: str) -> Path:
        """Where in the file stands what the scheduler names by its place in the request."""
        found = _REQUEST_PATH.match(asked)
        if found is None or int(found[1]) >= len(self.names):
            return tuple(name for name, _ in _STEP.findall(asked) if name)[:2]
        name = self.names[int(found[1])]
        rest = tuple(int(place) if place else key for key, place in _STEP.findall(asked[found.end() :]))
        job, defaults = self._document["jobs"][name], self._document.get("defaults") or {}
        if rest and rest[0] not in job and rest[0] in defaults:
            return ("defaults", *rest)
        return ("jobs", name, *rest)

    def _tried(self, read: Any, value: Any) -> Any:
        try:
            return read(value)
        except Fault as fault:
            self._faults.append(fault)
            return None

    def _top(self, data: Any) -> Json:
        if is_nothing(data):
            raise Unusable([Fault((), "the file is empty; a workflow has at least jobs: with one job below")])
        if not isinstance(data, dict):
            raise Unusable([Fault((), f"a workflow is a map with jobs:, not {kind(data)}")])
        self._faults += [unknown(name, _KEYS, ()) for name in data if name not in _KEYS]
        return data

    def _group(self, value: Any) -> Json:
        if is_nothing(value):
            return {}
        found = table(value, ("group",))
        refuse_others(found, _GROUP, ("group",))
        group = {name: text(each, ("group", name)) for name, each in found.items() if not is_nothing(each)}
        for name, choices in _GROUP.items():
            if choices and group.get(name, choices[0]) not in choices:
                raise Fault(("group", name), f"it is {' or '.join(choices)}, not {group[name]!r}")
        return group

    def _named_jobs(self) -> Mapping[str, Any]:
        found = self._document.get("jobs")
        if not isinstance(found, dict) or not found:
            advice = "write the jobs below it, each with a name: jobs: {build: {command: [make]}}"
            said = "a workflow has jobs" if is_nothing(found) or found == {} else f"jobs: is a map, not {kind(found)}"
            self._faults.append(Fault(("jobs",), f"{said}; {advice}"))
            return {}
        if len(found) > MOST_JOBS:
            self._faults.append(Fault(("jobs",), f"{len(found)} jobs; one file has at most {MOST_JOBS}"))
            return {}
        for name in found:
            if not is_name(name) or ":" in name or name.startswith("job-"):
                rule = f"use {NAME_RULE}, without :, and not like a job's id"
                self._faults.append(Fault(("jobs", name), f"not a usable name of a job: {shown(name)}; {rule}"))
        return found

    def _fields(self, value: Any, path: Path) -> Json:
        """What of them can be read; the rest is kept as a fault."""
        if is_nothing(value):
            return {}
        if not isinstance(value, dict):
            self._faults.append(Fault(path, f"a job is a map with a command or a template, not {kind(value)}"))
            return {}
        found: Json = {}
        for name, each in value.items():
            read = FIELDS.get(name)
            try:
                if read is None:
                    raise unknown(name, FIELDS, path)
                if not is_nothing(each):
                    found[name] = read(each, (*path, name))
            except Fault as fault:
                self._faults.append(fault)
        return found

    def _job(self, name: str) -> Json | None:
        path = ("jobs", name)
        before, written = len(self._faults), self._document["jobs"][name]
        own = self._fields(written, path)
        job = _together(self._defaults, own)
        if len(self._faults) == before and "command" not in job and "template" not in job:
            is_typed = isinstance(written, dict) or is_nothing(written)
            advice = "it has neither a command nor a template; write command: [make, test]"
            self._faults += [Fault(path, advice)] if is_typed else []
        if "after" in job:
            start: Path = (*path, "after") if "after" in own else ("defaults", "after")
            job["after"] = self._after(job["after"], start, name)
        if "webhook" in job:
            job["webhooks"] = [*job.get("webhooks", ()), job.pop("webhook")]
        if "cwd" in job:
            job["cwd"] = os.path.abspath(os.path.join(self._cwd, job["cwd"]))  # noqa: PTH100, PTH118 - keeps links
        return {"local": name, "name": name, **job}

    def _after(self, value: Any, path: Path, name: str) -> list[Json]:
        found = []
        # What all come after is not to come after itself.
        is_shared = path[0] == "defaults"
        for n, each in enumerate([value] if isinstance(value, dict) else entries(value, path)):
            edge = self._tried(lambda written, at=(*path, n): self._edge(written, at), each)
            if edge is not None and not (is_shared and edge["job"] == name):
                found.append(edge)
        return found

    def _edge(self, value: Any, path: Path) -> Json:
        if isinstance(value, dict):
            refuse_others(value, ("job", "policy"), path)
            if "job" not in value:
                raise Fault(path, "it names no job: write {job: build, policy: finished}, or build:finished")
            job = text(value["job"], (*path, "job"))
            policy = text(value.get("policy", "success"), (*path, "policy"))
        else:
            job, _, policy = text(value, path).partition(":")
            policy = policy or "success"
        if policy not in _POLICIES:
            raise Fault(path, f"the policy is one of {', '.join(_POLICIES)}, not {policy!r}")
        if job not in self._known and not _ID.fullmatch(job):
            raise Fault(path, f"no job is called {job!r}; {self._nearest(job)}")
        return {"job": job, "policy": policy}

    def _nearest(self, job: str) -> str:
        from difflib import get_close_matches

        near = get_close_matches(job, self.names[:1000], n=1, cutoff=0.5)
        return f"did you mean {near[0]!r}?" if near else "name a job of this file, or an id such as job-12"


def _together(defaults: Json, own: Json) -> Json:
    """A job's own words before the shared ones; a command of its own is instead of a shared template."""
    both = {**defaults, **own}
    for name in _BY_KEY:
        if name in defaults and name in own:
            both[name] = {**defaults[name], **own[name]}
    if "command" in own and "template" not in own:
        both.pop("template", None)
    if "template" in own and "command" not in own:
        both.pop("command", None)
    return both
