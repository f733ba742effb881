"""Probe before a submit is stored: the repository, the pinned head and the needed artifacts.

It reads the file system, which may be slow, so it never runs inside a transaction. A submit without such references
probes nothing.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from rota.db.artifacts import artifact_scope
from rota.errors import InvalidInput, RotaError, ServiceUnavailable, error_path
from rota.jobs.submission import DefaultEnvironment, Submission
from rota.kernel.artifacts import (
    Artifact,
    ArtifactNeed,
    ArtifactPaths,
    ArtifactScope,
    PinnedHead,
    facts_for_needs,
    parse_artifact,
    parse_pin,
)
from rota.kernel.facts import BranchHead, Fact, FactValue, ProbeFailure
from rota.naming import has_line_break
from rota.probe.port import Probe


class ResolvedInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Repository, artifacts and pinned head of one job."""

    repository: str | None = None
    needs: tuple[Artifact, ...] = ()
    products: tuple[Artifact, ...] = ()
    pinned_head: PinnedHead | None = None


class Preflight(msgspec.Struct, frozen=True, kw_only=True):
    inputs: Sequence[ResolvedInputs] = ()
    """Inputs of each job of the submit; empty if no job needs a probe."""
    observed: Mapping[Fact, FactValue] = {}
    probe_number: int = 0
    """Number of the probe."""
    refusal: RotaError | None = None
    """Error to raise, unless the submit turns out to be a duplicate."""


EMPTY_PREFLIGHT = Preflight()
_MAX_REPOSITORY_BYTES = 1500
"""Maximum size of a repository path: an index holds it beside the artifact."""


def needs_probe(submission: Submission) -> bool:
    return bool(submission.needs or submission.produces or submission.pin is not None)


def probed_directories(submission: Submission, default_environment: DefaultEnvironment) -> Iterator[str]:
    """Yield the directories that the preflight of a submission reads."""
    if needs_probe(submission):
        cwd = submission.cwd or default_environment.cwd
        yield cwd
        for text in submission.needs:
            if text.startswith("file:"):
                yield posixpath.dirname(posixpath.join(cwd, text.removeprefix("file:")))


def run_preflight(
    submissions: Sequence[Submission],
    default_environment: DefaultEnvironment,
    probe: Probe,
    paths: ArtifactPaths,
    *,
    probe_number: int,
) -> Preflight:
    inputs: list[ResolvedInputs] = []
    try:
        for member in submissions:
            resolved = _resolve_inputs(member, default_environment, probe)
            inputs.append(resolved)  # the length locates an error
    except RotaError as error:
        return Preflight(refusal=error.at_path(f".jobs[{len(inputs)}]"))
    facts: set[Fact] = set()
    for job_inputs in inputs:
        repository, pin = job_inputs.repository, job_inputs.pinned_head
        needs = [ArtifactNeed(artifact=need, scope=artifact_scope(need, repository)) for need in job_inputs.needs]
        facts.update(facts_for_needs(needs, paths))
        if pin is not None and repository is not None:
            facts.add(BranchHead(repository, pin.branch))
    return Preflight(inputs=inputs, observed=probe.observe(facts) if facts else {}, probe_number=probe_number)


def _resolve_inputs(submission: Submission, default_environment: DefaultEnvironment, probe: Probe) -> ResolvedInputs:
    if not needs_probe(submission):
        return ResolvedInputs()
    cwd = submission.cwd if submission.cwd is not None else default_environment.cwd
    needs, products = parse_inputs(submission, cwd)
    repository = probe.find_repository(cwd)
    check_repository(repository)
    if repository is None:
        _refuse_without_repository(cwd, submission)
    with error_path(".pin"):
        pin = None if submission.pin is None or repository is None else _resolve_pin(repository, submission.pin, probe)
    return ResolvedInputs(
        repository=repository, needs=_deduplicate(needs), products=_deduplicate(products), pinned_head=pin
    )


def check_repository(path: str | None) -> None:
    """Refuse a repository path that cannot be the scope of an artifact."""
    if path is not None and has_line_break(path):
        message = f"the path of the repository has a line break: {path[:200]!r}"
        raise InvalidInput(f"{message}; rename the directory, or name another `cwd`").at_path(".cwd")
    if path is not None and len(path.encode(errors="surrogateescape")) > _MAX_REPOSITORY_BYTES:
        raise InvalidInput(
            f"the path of the repository is too long: {path[:200]}…; the maximum is {_MAX_REPOSITORY_BYTES} bytes"
        ).at_path(".cwd")


def parse_inputs(submission: Submission, cwd: str) -> tuple[list[Artifact], list[Artifact]]:
    """Parse the needs and products of a submission, and check them as far as that is possible without a probe."""
    if has_line_break(cwd):
        message = f"the working directory {cwd!r} has a line break; `needs`, `produces` and `pin` need one without"
        raise InvalidInput(f"{message}: rename the directory, or name another `cwd`").at_path(".cwd")
    needs, products = (
        parse_artifacts("needs", submission.needs, cwd),
        parse_artifacts("produces", submission.produces, cwd),
    )
    for n, artifact in enumerate(products):
        if artifact.job is not None:
            message = f"{artifact} is the patch of {artifact.name}; no other job can produce it"
            raise InvalidInput(message).at_path(f".produces[{n}]")
    if submission.pin is not None:
        with error_path(".pin"):
            parse_pin(submission.pin)
    return needs, products


def parse_artifacts(field: str, texts: Sequence[str], cwd: str = "/") -> list[Artifact]:
    artifacts = []
    for n, text in enumerate(texts):
        with error_path(f".{field}[{n}]"):
            artifacts.append(parse_artifact(text, cwd=cwd))
    return artifacts


def _deduplicate(artifacts: Sequence[Artifact]) -> tuple[Artifact, ...]:
    """Drop repeats and keep the order."""
    return tuple(dict.fromkeys(artifacts))


def _refuse_without_repository(cwd: str, submission: Submission) -> None:
    named = {".pin": f"`pin` {submission.pin}"} if submission.pin is not None else {}
    for field, texts in (("needs", submission.needs), ("produces", submission.produces)):
        for n, artifact in enumerate(parse_artifacts(field, texts, cwd)):
            if artifact.definition.scope is ArtifactScope.REPOSITORY:
                named.setdefault(f".{field}[{n}]", str(artifact))
    for path, reference in named.items():
        raise InvalidInput(
            f"{cwd} is not in a git repository, and {reference} belongs to one; submit it with a `cwd` inside of one"
        ).at_path(path)


def _resolve_pin(repository: str, text: str, probe: Probe) -> PinnedHead:
    branch, commit = parse_pin(text)
    head = BranchHead(repository, branch)
    oid = probe.observe([head])[head] if commit is None else probe.resolve_commit(repository, commit)
    if isinstance(oid, ProbeFailure):
        raise ServiceUnavailable(f"branch {branch} of {repository} cannot be read now; `rota.log` in the home says why")
    if commit is None and not oid:
        raise InvalidInput(
            f"no branch {branch} in {repository}, so there is no head to pin; name a commit, as in {branch}@OID"
        )
    if commit is not None and not oid:
        raise InvalidInput(f"no commit {commit} in {repository}; {branch} alone pins the head as it is now")
    return PinnedHead(branch=branch, oid=str(oid))
