"""What a submit has to see outside before it is stored: the repository, the pinned head, the artifacts it needs.

Asks the file system, which may take its time: never inside a transaction. A submit that names nothing of the kind sees
nothing.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from rota.command.submission import Submission, Surroundings
from rota.core.artifact import Artifact, Belongs, Need, Places, facts_of, parse_artifact
from rota.core.fact import Fact, Head, Seen, Trouble
from rota.core.pinned_head import PinnedHead, parse_pin
from rota.errors import InvalidInput, RotaError, Unavailable, within
from rota.probe.port import Probe
from rota.store.artifact import scope_of


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What was found for one job."""

    repository: str | None = None
    needs: tuple[Artifact, ...] = ()
    products: tuple[Artifact, ...] = ()
    pinned_head: PinnedHead | None = None


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    found: Sequence[Found] = ()
    """For each job of the submit; empty where none of them names anything outside."""
    seen: Mapping[Fact, Seen] = {}
    began: int = 0
    """The number of the look."""
    refusal: RotaError | None = None
    """Raised only when the submit is not one that was taken before."""


NOTHING = Survey()
_LONGEST = 1500
"""Bytes of a repository's path: an index has to hold it beside the artifact."""


def names_something(wanted: Submission) -> bool:
    return bool(wanted.needs or wanted.produces or wanted.pin is not None)


def places_of(wanted: Submission, around: Surroundings) -> Iterator[str]:
    """The directories that are looked into for it."""
    if names_something(wanted):
        cwd = wanted.cwd or around.cwd
        yield cwd
        for text in wanted.needs:
            if text.startswith("file:"):
                yield posixpath.dirname(posixpath.join(cwd, text.removeprefix("file:")))


def survey(
    wanted: Sequence[Submission], around: Surroundings, probe: Probe, places: Places, *, began: int
) -> Survey:  # fmt: skip
    found: list[Found] = []
    try:
        for member in wanted:
            found.append(_find(member, around, probe))  # noqa: PERF401 - how far it came says whose fault it was
    except RotaError as error:
        return Survey(refusal=error.under(f".jobs[{len(found)}]"))
    facts: set[Fact] = set()
    for each in found:
        needs = [Need(artifact=need, scope=scope_of(need, each.repository)) for need in each.needs if need.job is None]
        facts.update(facts_of(needs, places))
        if each.pinned_head is not None and each.repository is not None:
            facts.add(Head(each.repository, each.pinned_head.branch))
    return Survey(found=found, seen=probe.look(facts) if facts else {}, began=began)


def _find(wanted: Submission, around: Surroundings, probe: Probe) -> Found:
    if not names_something(wanted):
        return Found()
    cwd = wanted.cwd if wanted.cwd is not None else around.cwd
    needs, products = check_named(wanted, cwd)
    repository = probe.repository_of(cwd)
    if repository is not None and len(repository.encode(errors="surrogateescape")) > _LONGEST:
        raise InvalidInput(
            f"the path of the repository is too long: {repository[:200]}…; it has at most {_LONGEST} bytes"
        ).under(".cwd")
    if repository is None:
        _refuse_without_repository(cwd, wanted)
    with within(".pin"):
        pin = None if wanted.pin is None or repository is None else _pin(repository, wanted.pin, probe)
    return Found(repository=repository, needs=_once(needs), products=_once(products), pinned_head=pin)


def check_named(wanted: Submission, cwd: str) -> tuple[list[Artifact], list[Artifact]]:
    """What it needs and what it produces, each as it stands there, as far as that can be known without a look."""
    needs, products = parse_named("needs", wanted.needs, cwd), parse_named("produces", wanted.produces, cwd)
    for n, artifact in enumerate(products):
        if artifact.job is not None:
            said = f"{artifact} is the patch that {artifact.name} leaves; no other job produces it"
            raise InvalidInput(said).under(f".produces[{n}]")
    if wanted.pin is not None:
        with within(".pin"):
            parse_pin(wanted.pin)
    return needs, products


def parse_named(field: str, texts: Sequence[str], cwd: str = "/") -> list[Artifact]:
    artifacts = []
    for n, text in enumerate(texts):
        with within(f".{field}[{n}]"):
            artifacts.append(parse_artifact(text, cwd=cwd))
    return artifacts


def _once(artifacts: Sequence[Artifact]) -> tuple[Artifact, ...]:
    """Repeats are dropped, order kept."""
    return tuple(dict.fromkeys(artifacts))


def _refuse_without_repository(cwd: str, wanted: Submission) -> None:
    named = {".pin": f"`pin` {wanted.pin}"} if wanted.pin is not None else {}
    for field, texts in (("needs", wanted.needs), ("produces", wanted.produces)):
        for n, artifact in enumerate(parse_named(field, texts, cwd)):
            if artifact.kind.belongs is Belongs.REPOSITORY:
                named.setdefault(f".{field}[{n}]", str(artifact))
    for path, what in named.items():
        raise InvalidInput(
            f"{cwd} is not in a git repository, and {what} belongs to one; submit it with a `cwd` inside of one"
        ).under(path)


def _pin(repository: str, text: str, probe: Probe) -> PinnedHead:
    branch, given = parse_pin(text)
    head = Head(repository, branch)
    oid = probe.look([head])[head] if given is None else probe.resolve(repository, given)
    if isinstance(oid, Trouble):
        raise Unavailable(f"branch {branch} of {repository} cannot be read now; `rota.log` in the home says why")
    if given is None and not oid:
        raise InvalidInput(
            f"no branch {branch} in {repository}, so there is no head to pin; name a commit, as in {branch}@OID"
        )
    if given is not None and not oid:
        raise InvalidInput(f"no commit {given} in {repository}; {branch} alone pins the head as it is now")
    return PinnedHead(branch=branch, oid=str(oid))
