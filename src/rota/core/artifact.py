"""The artifact gate: typed things that exist or not, that jobs need and produce.

An artifact is there or not, whatever became of the jobs that were to make it; only when it is missing do its
producers decide whether to wait for it or to give up. Six types are the seed's, and `file` and `custom` are for
everybody. The types are registered in `TYPES`: how each is written, what it belongs to, where it is looked for.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from rota.core.fact import UNREADABLE, Document, Fact, File, Head, Seen
from rota.core.status import STARTED, TERMINAL, Status
from rota.core.verdict import PASS, Block, Unknown, Verdict, Wait
from rota.core.wait import WaitKind
from rota.errors import InvalidInput
from rota.ids import JobId, parse_job, show_job

MOST_BYTES = 1000
"""Of an artifact as it is written, a path made absolute: an index has to hold it."""
_SHOWN = 200
_LONGEST_BRANCH = 255
"""Bytes; no file system that git writes refs to takes a longer name, but for one with many slashes."""
SENTINEL = "merge_sentinel"
_SLUG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_IN_NO_BRANCH = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(/|$)")
_PLANNED = re.compile(r"(?P<slug>\S+)(?: \((?P<branch>[^()]+)\))?")


class Belongs(StrEnum):
    """What two artifacts of one name have to share to be the same."""

    REPOSITORY = "repository"
    """The repository; there has to be one."""
    SURROUNDINGS = "surroundings"
    """The repository, where there is one."""
    HOME = "home"
    """Nothing: there is one of it to a home."""


class Type(msgspec.Struct, frozen=True, kw_only=True):
    form: str
    belongs: Belongs
    counts_while_made: bool
    """It is there once it can be seen, though one of its producers is at work on it."""


TYPES: Mapping[str, Type] = {
    "plan_branch": Type(form="plan_branch:<slug> (<branch>)", belongs=Belongs.REPOSITORY, counts_while_made=True),
    "plan_doc": Type(form="plan_doc:<slug> (<branch>)", belongs=Belongs.REPOSITORY, counts_while_made=True),
    "plan_commits": Type(form="plan_commits:<slug> (<branch>)", belongs=Belongs.REPOSITORY, counts_while_made=True),
    "target_branch": Type(form="target_branch:<branch>", belongs=Belongs.REPOSITORY, counts_while_made=True),
    "merge_sentinel": Type(form="merge_sentinel:<slug>", belongs=Belongs.HOME, counts_while_made=True),
    "command_patch": Type(form="command_patch:<job>", belongs=Belongs.HOME, counts_while_made=True),
    "file": Type(form="file:<path>", belongs=Belongs.HOME, counts_while_made=False),
    "custom": Type(form="custom:<type>:<key>", belongs=Belongs.SURROUNDINGS, counts_while_made=False),
}


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    """One artifact, by its parts."""

    type: str
    name: str
    """Slug, branch, job, path, or type and key."""
    branch: str | None = None

    def __str__(self) -> str:
        return f"{self.type}:{self.name}" if self.branch is None else f"{self.type}:{self.name} ({self.branch})"

    @property
    def kind(self) -> Type:
        return TYPES[self.type]

    @property
    def job(self) -> JobId | None:
        """The job whose patch it is."""
        number = self.name.removeprefix("job-")
        return JobId(int(number)) if self.type == "command_patch" and number.isdecimal() else None


def is_branch(name: str) -> bool:
    """As git wants it: what it could never have is not waited for."""
    return (
        0 < len(name.encode(errors="surrogatepass")) <= _LONGEST_BRANCH
        and name != "@"
        and not name.startswith(("-", "/", "."))
        and not name.endswith(("/", "."))
        and _IN_NO_BRANCH.search(name) is None
    )


def parse_artifact(text: str, *, cwd: str = "/") -> Artifact:
    """The artifact that is written so; a path is made absolute against `cwd`."""
    type_, colon, rest = text.partition(":")
    if type_ not in TYPES:
        raise InvalidInput(
            f"unknown artifact type in {text!r}; the types are {', '.join(t.form for t in TYPES.values())}"
        )
    artifact = _parse(type_, rest, cwd) if colon and "\x00" not in text else None
    if artifact is None:
        raise InvalidInput(f"malformed artifact: {text[:_SHOWN]!r}; it is written {TYPES[type_].form}")
    if len(str(artifact).encode()) > MOST_BYTES:
        raise InvalidInput(
            f"artifact too long: {text[:_SHOWN]!r}…; it has at most {MOST_BYTES} bytes, a path made absolute"
        )
    return artifact


def decode_artifact(text: str) -> Artifact:
    """One that was stored. Whatever it is, it can be read: what nobody can make sense of is never there."""
    type_, _, rest = text.partition(":")
    if type_ not in TYPES:
        return Artifact(type="custom", name=text)
    found = _PLANNED.fullmatch(rest) if type_.startswith("plan_") else None
    if found is not None and found["branch"] is not None:
        return Artifact(type=type_, name=found["slug"], branch=found["branch"])
    return Artifact(type=type_, name=rest)


def _parse(type_: str, rest: str, cwd: str) -> Artifact | None:
    match type_:
        case "plan_branch" | "plan_doc" | "plan_commits":
            return _parse_planned(type_, rest)
        case "target_branch":
            return Artifact(type=type_, name=rest) if is_branch(rest) else None
        case "merge_sentinel":
            return Artifact(type=type_, name=rest) if _SLUG.fullmatch(rest) else None
        case "command_patch":
            return Artifact(type=type_, name=show_job(parse_job(rest))) if rest else None
        case "file":
            return Artifact(type=type_, name=posixpath.normpath(posixpath.join(cwd, rest))) if rest else None
        case _:
            kind, colon, key = rest.partition(":")
            is_usable = _SLUG.fullmatch(kind) and colon and key and key == key.strip() and key.isprintable()
            return Artifact(type=type_, name=rest) if is_usable else None


def _parse_planned(type_: str, rest: str) -> Artifact | None:
    found = _PLANNED.fullmatch(rest)
    if found is None or not _SLUG.fullmatch(found["slug"]):
        return None
    branch = found["branch"] or f"draft/{found['slug']}"
    return Artifact(type=type_, name=found["slug"], branch=branch) if is_branch(branch) else None


class MissingProducer(StrEnum):
    """What becomes of a job that needs an artifact which nobody is to produce."""

    BLOCK = "block"
    WAIT = "wait"


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """Where artifacts are looked for."""

    jobs: str
    """The directory that holds the jobs' own."""
    sentinels: str
    plan_doc: str = "plans/{slug}.md"
    """In the tree of the plan's branch."""


class Producer(msgspec.Struct, frozen=True, kw_only=True):
    """A chain that is to make an artifact."""

    status: Status
    """Of the chain's last job."""
    is_rewound: bool = False
    """It was rewound and has not ended since: what is there is of before."""


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """An artifact that a job needs, with what the store knows of it."""

    artifact: Artifact
    scope: str
    """The repository it belongs to; empty where it belongs to none."""
    is_declared: bool = False
    """Somebody has put it, or the job that it names COMPLETED."""
    producers: Sequence[Producer] = ()
    """The job's own chain is not among them: it cannot wait for itself."""
    missing_producer: MissingProducer = MissingProducer.BLOCK


class Outside(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of the world outside."""

    seen: Mapping[Fact, Seen] = {}
    """What is not in it has not been looked at."""
    places: Places = Places(jobs="", sentinels="")

    def presence(self, need: Need) -> bool | None:
        """Whether it is there; none when nobody has looked yet, or nobody could."""
        if need.is_declared:
            return True
        fact = fact_of(need, self.places)
        if fact is None:
            return False
        seen = self.seen.get(fact, UNREADABLE)
        return None if seen is UNREADABLE else bool(seen)

    def is_unreadable(self, need: Need) -> bool:
        fact = fact_of(need, self.places)
        return fact is not None and self.seen.get(fact) is UNREADABLE


def fact_of(need: Need, places: Places) -> Fact | None:
    """What has to be looked at to know whether it is there; none where the store alone knows."""
    artifact = need.artifact
    match artifact.type:
        case "plan_branch" | "plan_commits":
            return Head(need.scope, artifact.branch or "")
        case "target_branch":
            return Head(need.scope, artifact.name)
        case "plan_doc":
            return Document(need.scope, artifact.branch or "", places.plan_doc.replace("{slug}", artifact.name))
        case "merge_sentinel":
            return File(f"{places.sentinels}/{artifact.name}.json")
        case "command_patch":
            return None if artifact.job is None else File(f"{places.jobs}/{artifact.job}/command.patch")
        case "file":
            return File(artifact.name)
        case _:
            return None


def names_of(file: File, places: Places) -> list[str]:
    """The artifacts that are looked for there."""
    names = [f"file:{file.path}"]
    folder, name = posixpath.split(file.path)
    if folder == places.sentinels and name.endswith(".json"):
        names.append(f"merge_sentinel:{name.removesuffix('.json')}")
    if name == "command.patch" and posixpath.dirname(folder) == places.jobs:
        names.append(f"command_patch:job-{posixpath.basename(folder)}")
    return names


_SUCCEEDED = frozenset({Status.COMPLETED, Status.SKIPPED})


def _is_being_made(need: Need) -> bool:
    """What can be seen of it now does not count."""
    if any(producer.is_rewound for producer in need.producers):
        return True
    return not need.artifact.kind.counts_while_made and any(p.status in STARTED for p in need.producers)


def _judge(need: Need, outside: Outside) -> Verdict:
    presence = False if _is_being_made(need) else outside.presence(need)
    if presence is None and outside.is_unreadable(need):
        return _wait("waiting on", need)
    if presence is None:
        return Unknown(facts=tuple(facts_of([need], outside.places)), meanwhile=_wait("waiting on", need))
    if presence:
        return PASS
    if any(producer.status not in TERMINAL for producer in need.producers):
        return _wait("waiting on", need)
    if not need.producers and need.missing_producer is MissingProducer.WAIT:
        return _wait("awaiting producer for", need)
    if not need.producers or any(producer.status in _SUCCEEDED for producer in need.producers):
        return Block(detail=f"missing {need.artifact}")
    return Block(detail=f"dependency failed for {need.artifact}")


def _wait(why: str, need: Need) -> Wait:
    return Wait(
        status=Status.WAITING_ON_DEPS,
        kind=WaitKind.DEPENDENCIES,
        detail=f"{why} {need.artifact}",
        on=(f"artifact:{need.artifact}",),
    )


def judge_needs(needs: Sequence[Need], outside: Outside) -> Verdict:
    """In order; the first that is not there speaks."""
    for need in needs:
        verdict = _judge(need, outside)
        if verdict is not PASS:
            return verdict
    return PASS


def sentinels_of(artifacts: Iterable[Artifact], places: Places) -> list[File]:
    """Where the merge sentinels among these are."""
    facts = (fact_of(Need(artifact=each, scope=""), places) for each in artifacts if each.type == SENTINEL)
    return [fact for fact in facts if isinstance(fact, File)]


def facts_of(needs: Sequence[Need], places: Places) -> list[Fact]:
    return [fact for need in needs if (fact := fact_of(need, places)) is not None]
