"""Artifact gate and pinned head gate: what must exist, and where a branch must be, before a job starts.

An artifact is a typed thing that exists or not, and that jobs need and produce. An existing artifact satisfies a need
whatever the status of its producers. Only when the artifact is missing do the producers decide between waiting and
blocking. `ARTIFACT_TYPES` registers each type: its notation, its scope, and the rule for a missing producer. Six types
belong to development workflows; `file` and `custom` fit any job.

A job that is pinned to a commit starts only while the branch is at that commit.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from rota.errors import InvalidInput
from rota.ids import JobId, format_job_id, parse_job_id
from rota.kernel.facts import UNREADABLE, BranchFile, BranchHead, Fact, FactValue, FileExists
from rota.kernel.status import STARTED, TERMINAL, Status
from rota.kernel.verdict import PASS, Block, Undecided, Verdict, Wait, WaitKind
from rota.naming import has_line_break

MAX_ARTIFACT_BYTES = 1000
"""Maximum size of an artifact as text, with its path made absolute: a database index must hold it."""
MERGE_SENTINEL = "merge_sentinel"

_MAX_QUOTED_LENGTH = 200
_MAX_BRANCH_BYTES = 255
"""Longest branch name that file systems accept for a git ref. Names with many slashes could be longer."""
_SLUG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_INVALID_IN_BRANCH = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(/|$)")
_PLAN_REFERENCE = re.compile(r"(?P<slug>\S+)(?: \((?P<branch>[^()]+)\))?")
_COMMIT_PREFIX = re.compile(r"[0-9a-f]{4,64}")
_SUCCEEDED = frozenset({Status.COMPLETED, Status.SKIPPED})


class ArtifactScope(StrEnum):
    """Namespace in which an artifact's name is unique."""

    REPOSITORY = "repository"
    """The repository, which is required."""
    OPTIONAL_REPOSITORY = "optional_repository"
    """The repository if there is one, else the home."""
    HOME = "home"
    """The home."""


class MissingProducer(StrEnum):
    """Rule for a job that needs an artifact that no job produces."""

    BLOCK = "block"
    WAIT = "wait"


class ArtifactType(msgspec.Struct, frozen=True, kw_only=True):
    pattern: str
    scope: ArtifactScope
    counts_while_producing: bool
    """Whether an existing artifact counts while one of its producers is running."""
    missing_producer: MissingProducer = MissingProducer.BLOCK
    """Rule for jobs that do not choose one."""


ARTIFACT_TYPES: Mapping[str, ArtifactType] = {
    "plan_branch": ArtifactType(
        pattern="plan_branch:<slug> (<branch>)", scope=ArtifactScope.REPOSITORY, counts_while_producing=True
    ),
    "plan_doc": ArtifactType(
        pattern="plan_doc:<slug> (<branch>)", scope=ArtifactScope.REPOSITORY, counts_while_producing=True
    ),
    "plan_commits": ArtifactType(
        pattern="plan_commits:<slug> (<branch>)", scope=ArtifactScope.REPOSITORY, counts_while_producing=True
    ),
    "target_branch": ArtifactType(
        pattern="target_branch:<branch>", scope=ArtifactScope.REPOSITORY, counts_while_producing=True
    ),
    "merge_sentinel": ArtifactType(
        pattern="merge_sentinel:<slug>", scope=ArtifactScope.HOME, counts_while_producing=True
    ),
    "command_patch": ArtifactType(pattern="command_patch:<job>", scope=ArtifactScope.HOME, counts_while_producing=True),
    "file": ArtifactType(
        pattern="file:<path>",
        scope=ArtifactScope.HOME,
        counts_while_producing=False,
        missing_producer=MissingProducer.WAIT,
    ),
    "custom": ArtifactType(
        pattern="custom:<type>:<key>",
        scope=ArtifactScope.OPTIONAL_REPOSITORY,
        counts_while_producing=False,
        missing_producer=MissingProducer.WAIT,
    ),
}


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    """An artifact, split into its parts."""

    type: str
    name: str
    """Slug, branch, job, path, or type and key."""
    branch: str | None = None

    def __str__(self) -> str:
        return f"{self.type}:{self.name}" if self.branch is None else f"{self.type}:{self.name} ({self.branch})"

    @property
    def definition(self) -> ArtifactType:
        return ARTIFACT_TYPES[self.type]

    @property
    def job(self) -> JobId | None:
        """Job that a `command_patch` belongs to."""
        number = self.name.removeprefix("job-")
        return JobId(int(number)) if self.type == "command_patch" and number.isdecimal() else None


def parse_artifact(text: str, *, cwd: str = "/") -> Artifact:
    """Parse an artifact and make its path absolute against `cwd`."""
    type_, colon, rest = text.partition(":")
    if type_ not in ARTIFACT_TYPES:
        raise InvalidInput(
            f"unknown artifact type in {text!r}; known types: {', '.join(t.pattern for t in ARTIFACT_TYPES.values())}"
        )
    if has_line_break(text):
        raise InvalidInput(f"artifact {text[:_MAX_QUOTED_LENGTH]!r} has a line break; write it on one line")
    artifact = _parse_name(type_, rest, cwd) if colon and "\x00" not in text else None
    if artifact is None:
        raise InvalidInput(
            f"malformed artifact: {text[:_MAX_QUOTED_LENGTH]!r}; expected {ARTIFACT_TYPES[type_].pattern}"
        )
    if len(str(artifact).encode()) > MAX_ARTIFACT_BYTES:
        raise InvalidInput(
            f"artifact too long: {text[:_MAX_QUOTED_LENGTH]!r}…; the limit is {MAX_ARTIFACT_BYTES} bytes, counting an"
            " absolute path"
        )
    return artifact


def _parse_name(type_: str, rest: str, cwd: str) -> Artifact | None:
    match type_:
        case "plan_branch" | "plan_doc" | "plan_commits":
            return _parse_plan_name(type_, rest)
        case "target_branch":
            return Artifact(type=type_, name=rest) if is_branch_name(rest) else None
        case "merge_sentinel":
            return Artifact(type=type_, name=rest) if _SLUG.fullmatch(rest) else None
        case "command_patch":
            return Artifact(type=type_, name=format_job_id(parse_job_id(rest))) if rest else None
        case "file":
            return Artifact(type=type_, name=posixpath.normpath(posixpath.join(cwd, rest))) if rest else None
        case _:
            kind, colon, key = rest.partition(":")
            is_usable = _SLUG.fullmatch(kind) and colon and key and key == key.strip() and key.isprintable()
            return Artifact(type=type_, name=rest) if is_usable else None


def _parse_plan_name(type_: str, rest: str) -> Artifact | None:
    match = _PLAN_REFERENCE.fullmatch(rest)
    if match is None or not _SLUG.fullmatch(match["slug"]):
        return None
    branch = match["branch"] or f"draft/{match['slug']}"
    return Artifact(type=type_, name=match["slug"], branch=branch) if is_branch_name(branch) else None


def decode_artifact(text: str) -> Artifact:
    """Decode a stored artifact. Any text decodes, so that every record can be read; an unknown artifact never
    exists."""
    type_, _, rest = text.partition(":")
    if type_ not in ARTIFACT_TYPES:
        return Artifact(type="custom", name=text)
    match = _PLAN_REFERENCE.fullmatch(rest) if type_.startswith("plan_") else None
    if match is not None and match["branch"] is not None:
        return Artifact(type=type_, name=match["slug"], branch=match["branch"])
    return Artifact(type=type_, name=rest)


def is_branch_name(name: str) -> bool:
    """Return whether git accepts the branch name. A job must not wait for a branch that can never exist."""
    return (
        0 < len(name.encode(errors="surrogatepass")) <= _MAX_BRANCH_BYTES
        and name != "@"
        and not name.startswith(("-", "/", "."))
        and not name.endswith(("/", "."))
        and _INVALID_IN_BRANCH.search(name) is None
    )


class ArtifactPaths(msgspec.Struct, frozen=True, kw_only=True):
    """Directories and paths in which artifacts are looked up."""

    jobs: str
    """Directory with one subdirectory for each job."""
    sentinels: str
    plan_doc: str = "plans/{slug}.md"
    """Path of a plan document in the tree of its branch."""


class Producer(msgspec.Struct, frozen=True, kw_only=True):
    """A chain that declares an artifact in `produces`."""

    status: Status
    """Status of the chain's last job."""
    is_rewound: bool = False
    """Whether the chain was rewound and has not ended since: an existing artifact is from an earlier run."""


class ArtifactNeed(msgspec.Struct, frozen=True, kw_only=True):
    """An artifact that a job needs, with the state that the store knows."""

    artifact: Artifact
    scope: str
    """Repository that the artifact belongs to; empty if it belongs to none."""
    is_declared: bool = False
    """Whether the artifact was put explicitly, or the job that it names COMPLETED."""
    producers: Sequence[Producer] = ()
    """Chains that produce the artifact, except the job's own: a job cannot wait for itself."""
    missing_producer: MissingProducer = MissingProducer.BLOCK


class Observations(msgspec.Struct, frozen=True, kw_only=True):
    """Facts observed outside the store."""

    observed: Mapping[Fact, FactValue] = {}
    """Value of each fact that has been probed."""
    paths: ArtifactPaths = ArtifactPaths(jobs="", sentinels="")

    def presence(self, need: ArtifactNeed) -> bool | None:
        """Return whether the artifact exists, or `None` while its fact is unprobed or unreadable."""
        if need.is_declared:
            return True
        fact = fact_for_need(need, self.paths)
        if fact is None:
            return False
        value = self.observed.get(fact, UNREADABLE)
        return None if value is UNREADABLE else bool(value)

    def is_unreadable(self, need: ArtifactNeed) -> bool:
        fact = fact_for_need(need, self.paths)
        return fact is not None and self.observed.get(fact) is UNREADABLE


def fact_for_need(need: ArtifactNeed, paths: ArtifactPaths) -> Fact | None:
    """Return the fact that shows whether the artifact exists, or `None` if only the store knows."""
    artifact = need.artifact
    match artifact.type:
        case "plan_branch" | "plan_commits":
            return BranchHead(need.scope, artifact.branch or "")
        case "target_branch":
            return BranchHead(need.scope, artifact.name)
        case "plan_doc":
            return BranchFile(need.scope, artifact.branch or "", paths.plan_doc.replace("{slug}", artifact.name))
        case "merge_sentinel":
            return FileExists(f"{paths.sentinels}/{artifact.name}.json")
        case "command_patch":
            return None if artifact.job is None else FileExists(f"{paths.jobs}/{artifact.job}/command.patch")
        case "file":
            return FileExists(artifact.name)
        case _:
            return None


def facts_for_needs(needs: Sequence[ArtifactNeed], paths: ArtifactPaths) -> list[Fact]:
    return [fact for need in needs if (fact := fact_for_need(need, paths)) is not None]


def sentinel_files(artifacts: Iterable[Artifact], paths: ArtifactPaths) -> list[FileExists]:
    """Return the files of the merge sentinels among the artifacts."""
    facts = (
        fact_for_need(ArtifactNeed(artifact=artifact, scope=""), paths)
        for artifact in artifacts
        if artifact.type == MERGE_SENTINEL
    )
    return [fact for fact in facts if isinstance(fact, FileExists)]


def artifact_names_for_file(file: FileExists, paths: ArtifactPaths) -> list[str]:
    """Return the names of the artifacts that this file represents."""
    names = [f"file:{file.path}"]
    directory, name = posixpath.split(file.path)
    if directory == paths.sentinels and name.endswith(".json"):
        names.append(f"merge_sentinel:{name.removesuffix('.json')}")
    if name == "command.patch" and posixpath.dirname(directory) == paths.jobs:
        names.append(f"command_patch:job-{posixpath.basename(directory)}")
    return names


def describe_awaited_event(artifact: Artifact) -> str:
    """Return the event that satisfies a need for which there is no producer."""
    match artifact.type:
        case "file":
            return f"{artifact.name} exists"
        case "custom":
            return f"`rota artifact put {shlex.quote(str(artifact))}` puts it"
        case _:
            return "it exists"


def judge_needs(needs: Sequence[ArtifactNeed], observations: Observations) -> Verdict:
    """Return the verdict of the first unmet need, in order."""
    for need in needs:
        verdict = _judge_need(need, observations)
        if verdict is not PASS:
            return verdict
    return PASS


def _judge_need(need: ArtifactNeed, observations: Observations) -> Verdict:
    presence = False if _is_being_produced(need) else observations.presence(need)
    if presence is None and observations.is_unreadable(need):
        return _wait_for_need("waiting on", need)
    if presence is None:
        return Undecided(
            facts=tuple(facts_for_needs([need], observations.paths)), interim=_wait_for_need("waiting on", need)
        )
    if presence:
        return PASS
    if any(producer.status not in TERMINAL for producer in need.producers):
        return _wait_for_need("waiting on", need)
    if not need.producers and need.missing_producer is MissingProducer.WAIT:
        return _wait_for_need("awaiting producer for", need)
    if not need.producers or any(producer.status in _SUCCEEDED for producer in need.producers):
        return Block(detail=f"missing {need.artifact}")
    return Block(detail=f"dependency failed for {need.artifact}")


def _is_being_produced(need: ArtifactNeed) -> bool:
    """Return whether a visible artifact does not count yet, because a producer is still to replace it."""
    if any(producer.is_rewound for producer in need.producers):
        return True
    return not need.artifact.definition.counts_while_producing and any(p.status in STARTED for p in need.producers)


def _wait_for_need(prefix: str, need: ArtifactNeed) -> Wait:
    return Wait(
        status=Status.WAITING_ON_DEPS,
        kind=WaitKind.DEPENDENCIES,
        detail=f"{prefix} {need.artifact}",
        on=(f"artifact:{need.artifact}",),
    )


class PinnedHead(msgspec.Struct, frozen=True, kw_only=True):
    """Branch, and the commit that it must be at."""

    branch: str
    oid: str


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """A pinned head with the repository of its branch."""

    repository: str
    head: PinnedHead

    @property
    def fact(self) -> BranchHead:
        return BranchHead(self.repository, self.head.branch)


def parse_pin(text: str) -> tuple[str, str | None]:
    """Parse `main` or `main@<oid>` into the branch and the optional commit."""
    branch, at, oid = text.rpartition("@") if "@" in text else (text, "", "")
    if not is_branch_name(branch) or (at and not _COMMIT_PREFIX.fullmatch(oid.lower())):
        raise InvalidInput(f"malformed pin: {text!r}; expected BRANCH, or BRANCH@OID with 4 to 64 hexadecimal digits")
    return branch, oid.lower() or None


def judge_pin(pin: Pin | None, observations: Observations) -> Verdict:
    if pin is None:
        return PASS
    if pin.fact not in observations.observed:
        return Undecided(facts=(pin.fact,), interim=_wait_for_head(pin, f"pinned head mismatch on {pin.head.branch}"))
    if observations.observed[pin.fact] == pin.head.oid:
        return PASS
    return _wait_for_head(pin, f"pinned head mismatch on {pin.head.branch}")


def _wait_for_head(pin: Pin, detail: str) -> Wait:
    topic = f"head:{pin.repository}:{pin.head.branch}"
    return Wait(status=Status.WAITING_ON_DEPS, kind=WaitKind.PINNED_HEAD, detail=detail, on=(topic,))
