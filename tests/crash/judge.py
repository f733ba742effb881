"""Final check of a round: the responses of the clients, the history of the children and the store must agree.

lost          a job that was accepted and is not in the store, has not ended, or ended without a run and without a
              cause; a chain that stopped with retries left
twice         a run with two children; a job or chain that ran again without a request, or although a dependency ended
              otherwise; two runs at once that exclude each other
mislabeled    a result that is not the child's own; `unknown` although the supervisor was not killed
locks         locks and pool capacity without an owner, open groups and reservations
orphans       live processes that belong to no run
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from rota.client.requests.jobs import TERMINAL_STATUSES
from rota.kernel.run import CRASH_RECOVERY, UNKNOWN_EXIT
from tests.crash import history
from tests.crash.endings import EndingCheck
from tests.crash.history import Line
from tests.crash.load import POOLS, Submitted
from tests.crash.point import BY_NAME
from tests.crash.rig import CrashRig

KINDS = ("lost", "twice", "mislabeled", "locks", "orphans")
_NEVER_RAN = "the supervisor was lost while"
"""Start of the error of a run that was lost in a step before its command."""
_CLOCK_TOLERANCE = 0.01
"""Seconds by which the clocks of two processes may disagree."""
_KILL_DELAY = 0.1
"""Maximum seconds between the record of a kill and the kill: the killer may be preempted in between, while its victim
continues. A new supervisor takes longer."""


class Verdict(msgspec.Struct):
    jobs: int
    runs: int
    direct: int
    prefetched: int
    """Runs that the supervisor started from its queue, according to the store."""
    unknown: int
    """Runs whose exit code cannot be known: not a fault, but the cost of a killed supervisor."""
    faults: dict[str, list[str]]

    @property
    def is_good(self) -> bool:
        return not any(self.faults.values())


class Child(msgspec.Struct):
    """Actions of one run, from its own history lines."""

    label: str
    job: str
    begin: int
    end: int | None = None
    code: int | None = None


class Judge:
    def __init__(self, rig: CrashRig) -> None:
        self._rig = rig
        self._records = rig.records
        self._faults: dict[str, list[str]] = {kind: [] for kind in KINDS}
        self._lines = history.read_lines(rig.home)
        self._children: dict[str, Child] = {}
        self._kills: list[float] = []
        self._jobs = {job["id"]: job for job in self._pages("/api/jobs", "jobs")}
        self._runs = {run["id"]: run for run in self._pages("/api/job-runs", "runs")}

    def _pages(self, target: str, name: str) -> Iterator[dict[str, Any]]:
        cursor = ""
        while True:
            page = self._rig.api("GET", f"{target}?limit=1000{cursor}")
            yield from page[name]
            if page["next"] is None:
                return
            cursor = f"&cursor={page['next']}"

    def _dispatch_events(self) -> Iterator[dict[str, Any]]:
        position = 0
        while position is not None:
            page = self._rig.api("GET", f"/api/events?format=json&kind=job.dispatched&limit=1000&since={position}")
            yield from page["events"]
            position = page["next"]

    def _add_fault(self, kind: str, text: str) -> None:
        self._faults[kind].append(text)

    def verdict(self) -> Verdict:
        self._faults["mislabeled"] += self._records.faults
        self._read_history()
        self._check_accepted()
        self._check_chains()
        for kind, text in EndingCheck(self._jobs, self._records).faults():
            self._add_fault(kind, text)
        for run in self._runs.values():
            self._check_run(run)
        for label, submitted in self._records.by_label.items():
            if submitted.is_direct:
                self._check_direct(label, submitted)
        self._check_concurrency()
        self._check_order()
        self._check_points()
        self._check_leftovers()
        self._check_processes()
        self._check_second_recovery()
        prefetched = sum(event["cause"] == "prefetch" for event in self._dispatch_events())
        self._rig.stop()
        self._check_files()
        return Verdict(
            jobs=len(self._jobs),
            runs=len(self._runs),
            direct=sum(submitted.is_direct for submitted in self._records.by_label.values()),
            prefetched=prefetched,
            unknown=sum(_is_unknown(run["error"]) for run in self._runs.values()),
            faults=self._faults,
        )

    # The children.

    def _read_history(self) -> None:
        for at, line in enumerate(self._lines):
            match line.kind:
                case "kill" if line.label == "supervisor":
                    self._kills.append(line.at or 0.0)
                case "begin":
                    if line.run in self._children:
                        self._add_fault("twice", f"{line.run} of {line.job} has two children")
                    self._children[line.run] = Child(label=line.label, job=line.job, begin=at)
                case "end":
                    self._children[line.run].end = at
                    self._children[line.run].code = int(line.code)

    # The jobs.

    def _check_accepted(self) -> None:
        """Every client got its last response, so every job is in a response or is a retry."""
        accepted = Counter(job for submitted in self._records.by_label.values() for job in submitted.jobs)
        for name, count in accepted.items():
            if name not in self._jobs:
                self._add_fault("lost", f"{name} was accepted and is not in the store")
            if count > 1:
                self._add_fault("twice", f"{name} is the response to {count} requests")
        for name, job in self._jobs.items():
            if job["status"] not in TERMINAL_STATUSES:
                self._add_fault("lost", f"{name} stays {job['status']}: {job['wait']}")
            if job["retry_of"] is None and name not in accepted:
                self._add_fault("twice", f"{name} is in the store and in no response")

    def _check_chains(self) -> None:
        chains = defaultdict(list)
        for job in sorted(self._jobs.values(), key=lambda job: int(job["id"].removeprefix("job-"))):
            chains[job["chain"]].append(job)
        started = Counter(child.job for child in self._children.values())
        completed = Counter(run["job"] for run in self._runs.values() if run["status"] == "COMPLETED")
        by_chain = {job: submitted for submitted in self._records.by_label.values() for job in submitted.jobs}
        for chain, jobs in chains.items():
            names = [job["id"] for job in jobs]
            rewound = sum(self._records.rewound[name] for name in names)
            if sum(completed[name] for name in names) > 1 + rewound:
                self._add_fault("twice", f"{chain} was COMPLETED more than once")
            for name in names:
                if started[name] > 1 + self._records.rewound[name]:
                    self._add_fault("twice", f"{name} began {started[name]} times")
            submitted, last = by_chain.get(chain), jobs[-1]
            if submitted is None or last["status"] != "FAILED" or rewound:
                continue
            if len(jobs) < submitted.retries + 1 and not self._is_cancelled(names):
                self._add_fault("lost", f"{last['id']} is FAILED with retries left: {last['reason']}")

    def _is_cancelled(self, jobs: list[str]) -> bool:
        """Return whether the chain of one of the jobs was cancelled: `cancel` acts on the last job of the chain."""
        chains = {self._jobs[job]["chain"] for job in self._records.cancelled if job in self._jobs}
        return any(self._jobs[job]["chain"] in chains for job in jobs if job in self._jobs)

    def _check_run(self, run: dict[str, Any]) -> None:
        child, name = self._children.get(run["id"]), f"{run['id']} of {run['job']}"
        outcome = (run["status"], run["exit_code"])
        if run["status"] is None:
            self._add_fault("lost", f"{name} has no end")
        elif run["status"] == "CANCELLED":
            if not self._is_cancelled([run["job"]]):
                self._add_fault("mislabeled", f"{name} is CANCELLED without a request")
        elif _is_unknown(run["error"]):
            if child is not None and run["error"].startswith(_NEVER_RAN):
                self._add_fault("mislabeled", f"{name}: {run['error']}, but its command ran")
            if not self._was_killed_between(run["started_at"], _seconds(run["finished_at"]) + _CLOCK_TOLERANCE):
                self._add_fault("mislabeled", f"{name}: {run['error']}, though the supervisor was alive")
        elif child is None or child.code is None:
            self._add_fault("mislabeled", f"{name} is {outcome}, and its child did not record it: {child}")
        elif outcome != ("COMPLETED" if child.code == 0 else "FAILED", child.code):
            self._add_fault("mislabeled", f"{name} is {outcome}, and its child ended with {child.code}")

    def _was_killed_between(self, begin: str, end: float) -> bool:
        """Return whether a supervisor was killed in this period."""
        return any(_seconds(begin) - _KILL_DELAY <= kill < end for kill in self._kills)

    def _check_direct(self, label: str, submitted: Submitted) -> None:
        """Check a direct execution. It is not a job, so only its client has the result."""
        children = [child for child in self._children.values() if child.label == label]
        reservation = submitted.reservation or {}
        if len(children) > 1:
            self._add_fault("twice", f"{label} ran {len(children)} times")
        code = children[0].code if children else None
        if reservation["status"] == "COMPLETED":
            if code != 0:
                self._add_fault("mislabeled", f"{label} is COMPLETED, and its child ended with {code}")
        elif reservation["status"] == "FAILED" and _is_unknown(reservation["reason"]):
            if not self._was_killed_between(
                reservation["created_at"], _seconds(reservation["finished_at"]) + _CLOCK_TOLERANCE
            ):
                self._add_fault("mislabeled", f"{label}: {reservation['reason']}, though the supervisor was alive")
        elif reservation["status"] == "FAILED" and (code is None or reservation["exit_code"] != code):
            self._add_fault("mislabeled", f"{label} is FAILED {reservation['reason']}, and its child ended with {code}")
        elif reservation["status"] == "WAIT_OVER" and children:
            self._add_fault("mislabeled", f"{label} got no capacity, and ran")
        elif reservation["status"] == "CANCELLED":
            self._add_fault("mislabeled", f"{label} is CANCELLED without a request: {reservation['reason']}")

    # Runs at the same time.

    def _check_concurrency(self) -> None:
        """Follow the live children line by line. A child without an end line is skipped from the next line on."""
        alive: dict[str, Child] = {}
        for line in self._lines:
            child = self._children.get(line.run)
            if line.kind == "begin" and child is not None:
                self._check_exclusion(child, line, list(alive.values()))
                if child.end is not None:
                    alive[line.run] = child
            elif line.kind == "end":
                alive.pop(line.run, None)

    def _check_exclusion(self, child: Child, line: Line, others: list[Child]) -> None:
        submitted = self._records.by_label[child.label]
        name, used = f"{line.run} of {child.label}", Counter(_pool_demand(submitted))
        for other in others:
            other_submitted = self._records.by_label[other.label]
            used.update(_pool_demand(other_submitted))
            if other.label == child.label:
                self._add_fault("twice", f"{name}: two runs of its chain at once")
            for key in _find_conflicts(submitted, other_submitted):
                self._add_fault("twice", f"{name} and {other.label} hold {key} at once")
        for pool in _pool_demand(submitted):
            if used[pool] > POOLS[pool]:
                self._add_fault("twice", f"{name} raises {pool} to {used[pool]}/{POOLS[pool]}")

    def _check_order(self) -> None:
        """Check that no child began before its dependencies had ended. A rewound job has more than one end."""
        ends: dict[str, int] = {}
        rewound = {self._jobs[job]["chain"] for job in self._records.rewound if job in self._jobs}
        for child in self._children.values():
            chain = self._jobs[child.job]["chain"] if child.job in self._jobs else child.job
            ends[chain] = max(ends.get(chain, 0), child.end or 0)
        for child in self._children.values():
            for edge in self._records.by_label[child.label].after:
                chain = self._jobs[edge["job"]]["chain"]
                is_rewound = not rewound.isdisjoint((chain, self._jobs[child.job]["chain"]))
                if not is_rewound and ends.get(chain, 0) > child.begin:
                    self._add_fault("twice", f"{child.job} began before {edge['job']} had ended")

    def _check_points(self) -> None:
        """Check the outcome of the run at each kill. Skip runs of several processes, which may have been at any of
        them. The number of a run that was not claimed may belong to another run meanwhile."""
        with_steps = {
            job for submitted in self._records.by_label.values() if submitted.has_steps for job in submitted.jobs
        }
        for line in self._lines:
            name, _, number = line.code.partition("/")
            point, run_id = BY_NAME.get(name), f"run-{number}"
            if line.kind != "kill" or point is None or line.label != point.process or not number.isdecimal():
                continue
            run = self._runs.get(run_id)
            if run is not None and self._jobs[run["job"]]["chain"] in with_steps:
                continue
            is_same = point.is_claimed or not self._is_later_run(run_id, line.at or 0.0)
            if point.outcome == "again" and is_same and run_id in self._children:
                self._add_fault("twice", f"{run_id} was killed at {name}, and has a child")
            if point.outcome == "again" and is_same and run is not None and run["status"] != "CANCELLED":
                self._add_fault("mislabeled", f"{run_id} was killed at {name} and is {run['status']}")
            if run is not None and point.outcome in ("known", "unknown") and run["status"] != "CANCELLED":
                is_unknown = _is_unknown(run["error"])
                # An earlier kill may already have cost the exit code.
                is_older = is_unknown and self._was_killed_between(
                    run["started_at"], (line.at or 0.0) - _CLOCK_TOLERANCE
                )
                if is_unknown is not (point.outcome == "unknown") and not is_older:
                    self._add_fault("mislabeled", f"{run_id} was killed at {name} and is {run['error'] or 'known'}")

    def _is_later_run(self, run_id: str, moment: float) -> bool:
        """Return whether the run of this number was claimed later. A direct execution was, since none is prefetched."""
        run, child = self._runs.get(run_id), self._children.get(run_id)
        if run is not None:
            return _seconds(run["started_at"]) >= moment
        return child is not None and self._records.by_label[child.label].is_direct

    # Leftovers.

    def _check_leftovers(self) -> None:
        status = self._rig.status()
        for name, pool in status["pools"].items():
            if pool["used"]:
                self._add_fault("locks", f"{pool['used']} of pool {name} are in use")
        for lock in self._rig.api("GET", "/api/locks")["locks"]:
            self._add_fault("locks", f"held: {lock}")
        for reservation in self._rig.api("GET", "/api/reservations")["reservations"]:
            self._add_fault("locks", f"{reservation['id']} is {reservation['status']}")
        for group in self._pages("/api/job-groups", "groups"):
            if group["status"] in ("QUEUED", "RUNNING"):
                self._add_fault("locks", f"{group['id']} is {group['status']}")
        if status["errors"]:
            self._add_fault("locks", f"status: {status['errors']}")

    def _check_processes(self) -> None:
        home = self._rig.home
        expected = [*history.find_processes(home, "scheduler"), *history.find_processes(home, "supervisor")]
        for pid, argv in history.find_home_processes(home).items():
            if pid not in expected:
                self._add_fault("orphans", f"{pid}: {' '.join(argv)}")
        if len(expected) != 2:
            self._add_fault("orphans", f"{len(expected)} schedulers and supervisors")

    def _check_second_recovery(self) -> None:
        """Check that a restart after the end finds nothing to recover, even if both processes are killed."""
        self._rig.kill("both", "judge/0")
        counts = {name: count for name, count in (self._rig.status()["recovery"] or {}).items() if count}
        if counts:
            self._add_fault("mislabeled", f"a second recovery finds {counts}")

    def _check_files(self) -> None:
        """Check, after the scheduler has ended, that `outcome.json` of each job equals the store, and that the patch of
        its last run contains the changes of that run."""
        worktrees = {
            job for submitted in self._records.by_label.values() if submitted.worktree for job in submitted.jobs
        }
        for job in self._jobs.values():
            folder = self._rig.home / "jobs" / job["id"].removeprefix("job-")
            path, patch, run = folder / "outcome.json", folder / "command.patch", job["run"] and job["run"]["id"]
            child = self._children.get(run)
            is_cancelled = self._is_cancelled([job["id"]])  # a cancel does not wait for the patch
            if job["chain"] in worktrees and child is not None and child.end is not None and not is_cancelled:
                content = patch.read_text() if patch.exists() else ""
                if f"+made by {run}\n" not in content:
                    self._add_fault("lost", f"the patch of {run} of {job['id']}: {content[:300]!r}")
            if job["run"] is None or job["outcome_path"] is None:
                continue
            outcome = json.loads(path.read_text()) if path.exists() else {}
            if (outcome.get("status"), outcome.get("exit_code")) != (job["status"], job["exit_code"]):
                text = f"{job['id']} is {job['status']}, and its outcome.json has {outcome.get('status')}"
                self._add_fault("mislabeled", text)


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def _is_unknown(error: str | None) -> bool:
    return error is not None and error.startswith((CRASH_RECOVERY, UNKNOWN_EXIT, _NEVER_RAN))


def _pool_demand(submitted: Submitted) -> dict[str, int]:
    return {"global": 1, **submitted.pools}


def _find_conflicts(submitted: Submitted, other: Submitted) -> list[str]:
    modes = {lock["key"]: lock.get("mode", "exclusive") for lock in other.locks}
    return [
        lock["key"]
        for lock in submitted.locks
        if lock["key"] in modes and {modes[lock["key"]], lock.get("mode", "exclusive")} != {"shared"}
    ]
