"""When all has ended: what the clients were told, what the children wrote and what the store says must be one story.

lost          accepted, and not in the store, or without an end, or ended without cause and without a run; a chain that
              stopped with retries left
twice         a run with two children; a job or chain that ran again though nobody asked, or after what ended otherwise
              than it may; two at once that must not
mislabelled   an end that is not the one its child had; `unknown` where the supervisor was not killed
locks         held by nobody, pools in use by nobody, groups and slots that are open
orphans       processes that live and are nobody's
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from crash import witness
from crash.ends import Ends
from crash.ground import Ground
from crash.load import POOLS, Told
from crash.point import BY_NAME
from crash.witness import Line
from rota.client.ask.job import TERMINAL
from rota.core.run import CRASH_RECOVERY, UNKNOWN_EXIT

KINDS = ("lost", "twice", "mislabelled", "locks", "orphans")
_NEVER_BEGAN = "the supervisor was lost while"
"""So is said of a run whose `skip_if` nobody saw the end of."""
_CLOCKS = 0.01
"""Seconds by which times that two processes took may disagree."""
_LATE = 0.1
"""Seconds after which a kill is done that was written down: whoever does both may have to wait for its turn between
them, while what is to be killed goes on. No other supervisor is there so soon."""


class Verdict(msgspec.Struct):
    jobs: int
    runs: int
    direct: int
    ahead: int
    """Runs that the supervisor started by itself, as the store has it."""
    unknown: int
    """Runs whose exit code nobody can know: not a fault, but the price of a killed supervisor."""
    faults: dict[str, list[str]]

    @property
    def is_good(self) -> bool:
        return not any(self.faults.values())


class Child(msgspec.Struct):
    """What one run did, by its own account."""

    label: str
    job: str
    begin: int
    end: int | None = None
    code: int | None = None


class Judge:
    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._records = ground.records
        self._faults: dict[str, list[str]] = {kind: [] for kind in KINDS}
        self._lines = witness.read(ground.home)
        self._children: dict[str, Child] = {}
        self._kills: list[float] = []
        self._jobs = {job["id"]: job for job in self._pages("/api/jobs", "jobs")}
        self._runs = {run["id"]: run for run in self._pages("/api/job-runs", "runs")}

    def _pages(self, target: str, name: str) -> Iterator[dict[str, Any]]:
        cursor = ""
        while True:
            page = self._ground.api("GET", f"{target}?limit=1000{cursor}")
            yield from page[name]
            if page["next"] is None:
                return
            cursor = f"&cursor={page['next']}"

    def _dispatched(self) -> Iterator[dict[str, Any]]:
        position = 0
        while position is not None:
            page = self._ground.api("GET", f"/api/events?format=json&kind=job.dispatched&limit=1000&since={position}")
            yield from page["events"]
            position = page["next"]

    def _fault(self, kind: str, text: str) -> None:
        self._faults[kind].append(text)

    def verdict(self) -> Verdict:
        self._faults["mislabelled"] += self._records.faults
        self._read_witness()
        self._check_accepted()
        self._check_chains()
        for kind, text in Ends(self._jobs, self._records).faults():
            self._fault(kind, text)
        for run in self._runs.values():
            self._check_run(run)
        for label, told in self._records.told.items():
            if told.is_direct:
                self._check_direct(label, told)
        self._check_at_once()
        self._check_order()
        self._check_points()
        self._check_rest()
        self._check_processes()
        self._check_again()
        ahead = sum(event["cause"] == "ahead" for event in self._dispatched())
        self._ground.stop()
        self._check_files()
        return Verdict(
            jobs=len(self._jobs),
            runs=len(self._runs),
            direct=sum(told.is_direct for told in self._records.told.values()),
            ahead=ahead,
            unknown=sum(_is_unknown(run["error"]) for run in self._runs.values()),
            faults=self._faults,
        )

    # The children.

    def _read_witness(self) -> None:
        for at, line in enumerate(self._lines):
            match line.kind:
                case "kill" if line.label == "supervisor":
                    self._kills.append(line.at or 0.0)
                case "begin":
                    if line.run in self._children:
                        self._fault("twice", f"{line.run} of {line.job} has two children")
                    self._children[line.run] = Child(label=line.label, job=line.job, begin=at)
                case "end":
                    self._children[line.run].end = at
                    self._children[line.run].code = int(line.code)

    # The jobs.

    def _check_accepted(self) -> None:
        """Everybody was answered in the end, so that every job is one that somebody was told of, or its retry."""
        accepted = Counter(job for told in self._records.told.values() for job in told.jobs)
        for job, count in accepted.items():
            if job not in self._jobs:
                self._fault("lost", f"{job} was accepted and is not in the store")
            if count > 1:
                self._fault("twice", f"{job} is the answer to {count} requests")
        for name, shown in self._jobs.items():
            if shown["status"] not in TERMINAL:
                self._fault("lost", f"{name} is {shown['status']} for ever: {shown['wait']}")
            if shown["retry_of"] is None and name not in accepted:
                self._fault("twice", f"{name} is in the store, and nobody was told of it")

    def _check_chains(self) -> None:
        chains = defaultdict(list)
        for job in sorted(self._jobs.values(), key=lambda job: int(job["id"].removeprefix("job-"))):
            chains[job["chain"]].append(job)
        begun = Counter(child.job for child in self._children.values())
        done = Counter(run["job"] for run in self._runs.values() if run["status"] == "COMPLETED")
        told = {job: told for told in self._records.told.values() for job in told.jobs}
        for chain, jobs in chains.items():
            names = [job["id"] for job in jobs]
            rewound = sum(self._records.rewound[name] for name in names)
            if sum(done[name] for name in names) > 1 + rewound:
                self._fault("twice", f"{chain} was COMPLETED more than once")
            for name in names:
                if begun[name] > 1 + self._records.rewound[name]:
                    self._fault("twice", f"{name} began {begun[name]} times")
            wanted, last = told.get(chain), jobs[-1]
            if wanted is None or last["status"] != "FAILED" or rewound:
                continue
            if len(jobs) < wanted.retries + 1 and not self._is_cancelled(names):
                self._fault("lost", f"{last['id']} is FAILED with retries left: {last['reason']}")

    def _is_cancelled(self, jobs: list[str]) -> bool:
        """`cancel` acts on the last of the chain."""
        chains = {self._jobs[job]["chain"] for job in self._records.cancelled if job in self._jobs}
        return any(self._jobs[job]["chain"] in chains for job in jobs if job in self._jobs)

    def _check_run(self, run: dict[str, Any]) -> None:
        child, name = self._children.get(run["id"]), f"{run['id']} of {run['job']}"
        said = (run["status"], run["exit_code"])
        if run["status"] is None:
            self._fault("lost", f"{name} has no end")
        elif run["status"] == "CANCELLED":
            if not self._is_cancelled([run["job"]]):
                self._fault("mislabelled", f"{name} is CANCELLED, and nobody asked for that")
        elif _is_unknown(run["error"]):
            if child is not None and run["error"].startswith(_NEVER_BEGAN):
                self._fault("mislabelled", f"{name}: {run['error']}, and its command began")
            if not self._was_killed_between(run["started_at"], _seconds(run["finished_at"]) + _CLOCKS):
                self._fault("mislabelled", f"{name}: {run['error']}, though the supervisor lived")
        elif child is None or child.code is None:
            self._fault("mislabelled", f"{name} is {said}, and its child did not say so: {child}")
        elif said != ("COMPLETED" if child.code == 0 else "FAILED", child.code):
            self._fault("mislabelled", f"{name} is {said}, and its child ended with {child.code}")

    def _was_killed_between(self, begin: str, end: float) -> bool:
        """Whether a supervisor was."""
        return any(_seconds(begin) - _LATE <= kill < end for kill in self._kills)

    def _check_direct(self, label: str, told: Told) -> None:
        """Direct executions are not jobs: what their client was told is all there is."""
        children = [child for child in self._children.values() if child.label == label]
        slot = told.slot or {}
        if len(children) > 1:
            self._fault("twice", f"{label} ran {len(children)} times")
        code = children[0].code if children else None
        if slot["status"] == "COMPLETED":
            if code != 0:
                self._fault("mislabelled", f"{label} is COMPLETED, and its child ended with {code}")
        elif slot["status"] == "FAILED" and _is_unknown(slot["reason"]):
            if not self._was_killed_between(slot["created_at"], _seconds(slot["finished_at"]) + _CLOCKS):
                self._fault("mislabelled", f"{label}: {slot['reason']}, though the supervisor lived")
        elif slot["status"] == "FAILED" and (code is None or slot["exit_code"] != code):
            self._fault("mislabelled", f"{label} is FAILED {slot['reason']}, and its child ended with {code}")
        elif slot["status"] == "WAIT_OVER" and children:
            self._fault("mislabelled", f"{label} had no turn, and ran")
        elif slot["status"] == "CANCELLED":
            self._fault("mislabelled", f"{label} is CANCELLED, and nobody asked for that: {slot['reason']}")

    # What was there at the same time.

    def _check_at_once(self) -> None:
        """Line by line, who lives. A child that could not say its end is left out from the next line on."""
        alive: dict[str, Child] = {}
        for line in self._lines:
            child = self._children.get(line.run)
            if line.kind == "begin" and child is not None:
                self._check_beside(child, line, list(alive.values()))
                if child.end is not None:
                    alive[line.run] = child
            elif line.kind == "end":
                alive.pop(line.run, None)

    def _check_beside(self, child: Child, line: Line, others: list[Child]) -> None:
        told = self._records.told[child.label]
        name, used = f"{line.run} of {child.label}", Counter(_draws(told))
        for other in others:
            beside = self._records.told[other.label]
            used.update(_draws(beside))
            if other.label == child.label:
                self._fault("twice", f"{name}: two of its chain at once")
            for key in _clashes(told, beside):
                self._fault("twice", f"{name} and {other.label} hold {key} at once")
        for pool in _draws(told):
            if used[pool] > POOLS[pool]:
                self._fault("twice", f"{name} takes {pool} to {used[pool]}/{POOLS[pool]}")

    def _check_order(self) -> None:
        """Nobody begins before what it comes after has ended; what was rewound has more than one end."""
        ends: dict[str, int] = {}
        rewound = {self._jobs[job]["chain"] for job in self._records.rewound if job in self._jobs}
        for child in self._children.values():
            chain = self._jobs[child.job]["chain"] if child.job in self._jobs else child.job
            ends[chain] = max(ends.get(chain, 0), child.end or 0)
        for child in self._children.values():
            for edge in self._records.told[child.label].after:
                chain = self._jobs[edge["job"]]["chain"]
                is_rewound = not rewound.isdisjoint((chain, self._jobs[child.job]["chain"]))
                if not is_rewound and ends.get(chain, 0) > child.begin:
                    self._fault("twice", f"{child.job} began before {edge['job']} had ended")

    def _check_points(self) -> None:
        """What became of the run that a process was at when it was killed. A run of several processes may have been at
        any of them; one that was not claimed may be another by now."""
        stepping = {job for told in self._records.told.values() if told.has_steps for job in told.jobs}
        for line in self._lines:
            name, _, number = line.code.partition("/")
            point, run = BY_NAME.get(name), f"run-{number}"
            if line.kind != "kill" or point is None or line.label != point.process or not number.isdecimal():
                continue
            found = self._runs.get(run)
            if found is not None and self._jobs[found["job"]]["chain"] in stepping:
                continue
            is_same = point.is_claimed or not self._is_another(run, line.at or 0.0)
            if point.becomes == "again" and is_same and run in self._children:
                self._fault("twice", f"{run} was killed at {name}, and has a child")
            if point.becomes == "again" and is_same and found is not None and found["status"] != "CANCELLED":
                self._fault("mislabelled", f"{run} was killed at {name} and is {found['status']}")
            if found is not None and point.becomes in ("known", "unknown") and found["status"] != "CANCELLED":
                is_unknown = _is_unknown(found["error"])
                # An earlier kill may have cost what this one would have left.
                is_older = is_unknown and self._was_killed_between(found["started_at"], (line.at or 0.0) - _CLOCKS)
                if is_unknown is not (point.becomes == "unknown") and not is_older:
                    self._fault("mislabelled", f"{run} was killed at {name} and is {found['error'] or 'known'}")

    def _is_another(self, run: str, moment: float) -> bool:
        """What has this number was claimed after that; so was every direct execution, for none is given ahead."""
        found, child = self._runs.get(run), self._children.get(run)
        if found is not None:
            return _seconds(found["started_at"]) >= moment
        return child is not None and self._records.told[child.label].is_direct

    # What is left.

    def _check_rest(self) -> None:
        status = self._ground.status()
        for pool, shown in status["pools"].items():
            if shown["used"]:
                self._fault("locks", f"{shown['used']} of pool {pool} are in use")
        for lock in self._ground.api("GET", "/api/locks")["locks"]:
            self._fault("locks", f"left: {lock}")
        for slot in self._ground.api("GET", "/api/slots")["slots"]:
            self._fault("locks", f"{slot['id']} is {slot['status']}")
        for group in self._pages("/api/job-groups", "groups"):
            if group["status"] in ("QUEUED", "RUNNING"):
                self._fault("locks", f"{group['id']} is {group['status']}")
        if status["trouble"]:
            self._fault("locks", f"status: {status['trouble']}")

    def _check_processes(self) -> None:
        ours = [*witness.processes(self._ground.home, "scheduler"), *witness.processes(self._ground.home, "supervisor")]
        for pid, words in witness.of_home(self._ground.home).items():
            if pid not in ours:
                self._fault("orphans", f"{pid}: {' '.join(words)}")
        if len(ours) != 2:
            self._fault("orphans", f"{len(ours)} schedulers and supervisors")

    def _check_again(self) -> None:
        """All is over: who comes now finds nothing to recover, whoever is killed before."""
        self._ground.kill("both", "judge/0")
        found = {what: count for what, count in (self._ground.status()["recovery"] or {}).items() if count}
        if found:
            self._fault("mislabelled", f"a second recovery finds {found}")

    def _check_files(self) -> None:
        """The scheduler has ended: `outcome.json` beside each job says what the store says, and the patch of its last
        run has what that left."""
        worktrees = {job for told in self._records.told.values() if told.worktree for job in told.jobs}
        for job in self._jobs.values():
            folder = self._ground.home / "jobs" / job["id"].removeprefix("job-")
            path, patch, run = folder / "outcome.json", folder / "command.patch", job["run"] and job["run"]["id"]
            child = self._children.get(run)
            is_hurried = self._is_cancelled([job["id"]])  # who cancels does not wait for a patch
            if job["chain"] in worktrees and child is not None and child.end is not None and not is_hurried:
                made = patch.read_text() if patch.exists() else ""
                if f"+made by {run}\n" not in made:
                    self._fault("lost", f"the patch of {run} of {job['id']}: {made[:300]!r}")
            if job["run"] is None or job["outcome_path"] is None:
                continue
            shown = json.loads(path.read_text()) if path.exists() else {}
            if (shown.get("status"), shown.get("exit_code")) != (job["status"], job["exit_code"]):
                text = f"{job['id']} is {job['status']}, and its outcome.json says {shown.get('status')}"
                self._fault("mislabelled", text)


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def _is_unknown(error: str | None) -> bool:
    return error is not None and error.startswith((CRASH_RECOVERY, UNKNOWN_EXIT, _NEVER_BEGAN))


def _draws(told: Told) -> dict[str, int]:
    return {"global": 1, **told.pools}


def _clashes(one: Told, other: Told) -> list[str]:
    modes = {lock["key"]: lock.get("mode", "exclusive") for lock in other.locks}
    return [
        lock["key"]
        for lock in one.locks
        if lock["key"] in modes and {modes[lock["key"]], lock.get("mode", "exclusive")} != {"shared"}
    ]
