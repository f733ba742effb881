"""What git repositories say: by hand where the format is a contract, by the `git` program for everything else."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from rota.core.fact import UNREADABLE, Document, Fact, Head, Seen, Trouble
from rota.probe.document import Documents
from rota.probe.program import GitFailed, GitRefused, ask, ask_line
from rota.probe.ref import HEADS, Refs, read_loose, target_of
from rota.probe.repository import find_repository
from rota.probe.trouble import Troubles

_MOST = 100
_HEX = re.compile(r"[0-9a-f]{4,64}")
_IN_PROGRESS = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply", "sequencer")
_KEPT_AS_REFS = ("CHERRY_PICK_HEAD", "REVERT_HEAD")


class GitProbe:
    def __init__(self, troubles: Troubles) -> None:
        self._troubles = troubles
        self._known: dict[str, tuple[Refs, Documents]] = {}

    def look(self, facts: Iterable[Head | Document]) -> dict[Fact, Seen]:
        asked: dict[str, list[Head | Document]] = {}
        for fact in facts:
            asked.setdefault(fact.repository, []).append(fact)
        if len(self._known) > _MOST:
            self._known = {name: known for name, known in self._known.items() if name in asked}
        seen: dict[Fact, Seen] = {}
        for repository, its_facts in asked.items():
            seen.update(dict.fromkeys(its_facts, UNREADABLE))
            try:
                self._look_into(repository, its_facts, seen)
            except (FileNotFoundError, NotADirectoryError) as error:  # there is no such repository any more
                seen.update((fact, None if isinstance(fact, Head) else False) for fact in its_facts)
                self._troubles.tell(f"repository {repository}", str(error))
            except (GitFailed, OSError, ValueError) as error:
                self._troubles.tell(f"repository {repository}", str(error))
            else:
                self._troubles.is_over(f"repository {repository}")
        return seen

    def _look_into(self, repository: str, facts: list[Head | Document], seen: dict[Fact, Seen]) -> None:
        """Every branch is read once, so that a head and the documents in it agree."""
        if repository not in self._known:
            self._known[repository] = (Refs(repository, self._troubles), Documents(repository, self._troubles))
        refs, documents = self._known[repository]
        heads = refs.look({fact.branch for fact in facts})
        places = {}
        for fact in facts:
            oid = heads[fact.branch]
            if isinstance(fact, Head) or isinstance(oid, Trouble):
                seen[fact] = oid
            elif oid is None:
                seen[fact] = False
            else:
                places[fact] = (oid, fact.path)
        if places:
            answers = documents.look(set(places.values()))
            seen.update((fact, answers[place]) for fact, place in places.items())

    def repository_of(self, directory: str) -> str | None:
        found = find_repository(directory)
        return None if found is None else found.common

    def top_of(self, directory: str) -> str | None:
        found = find_repository(directory)
        if found is None or found.holder is None:
            return None
        # `core.bare` and `core.worktree` have a say in this, so git is asked.
        top = ask_line(found.directory, ["rev-parse", "--show-toplevel"], cwd=found.holder)
        return None if top is None else os.path.realpath(top)

    def branch(self, directory: str) -> str | None:
        found = find_repository(directory)
        if found is None or found.holder is None:
            return None
        try:
            if Refs(found.common, self._troubles).is_foreign():
                target = ask_line(found.directory, ["symbolic-ref", "--quiet", "HEAD"])
            else:
                target = target_of(read_loose(f"{found.directory}/HEAD"))
        except OSError:
            return None
        return target.removeprefix(HEADS) if target is not None and target.startswith(HEADS) else None

    def resolve(self, repository: str, rev: str) -> str | None:
        """By the ids of objects alone: a branch may be called `beef` as well."""
        rev = rev.lower()
        if not _HEX.fullmatch(rev):
            return None
        try:
            named = ask(repository, ["rev-parse", f"--disambiguate={rev}"]).split()
            lines = b"".join(oid + b"^{commit}\n" for oid in named)
            said = ask(repository, ["cat-file", "--batch-check"], stdin=lines).decode().splitlines()
        except GitRefused:
            return None
        except GitFailed as error:
            self._troubles.tell(f"repository {repository}", str(error))
            return None
        commits = {line.split()[0] for line in said if " commit " in line}
        return commits.pop() if len(commits) == 1 else None

    def has_merge_in_progress(self, repository: str) -> bool:
        try:
            is_foreign = Refs(repository, self._troubles).is_foreign()
        except OSError:
            is_foreign = False
        return any(_is_in_progress(directory, is_foreign) for directory in _working_trees(repository))


def _working_trees(repository: str) -> list[str]:
    """Git directories of the main working tree and of the linked ones that are still there."""
    try:
        linked = sorted(Path(repository, "worktrees").iterdir())
    except OSError:
        linked = []
    return [repository, *(str(directory) for directory in linked if _has_tree(directory))]


def _has_tree(directory: Path) -> bool:
    try:
        link = os.fsdecode((directory / "gitdir").read_bytes()).rstrip("\r\n")
        return (directory / "locked").exists() or (directory / link).exists()
    except OSError:
        return False


def _is_in_progress(directory: str, is_foreign: bool) -> bool:
    if any(os.path.lexists(f"{directory}/{name}") for name in _IN_PROGRESS):
        return True
    return is_foreign and any(
        ask_line(directory, ["rev-parse", "--quiet", "--verify", name]) is not None for name in _KEPT_AS_REFS
    )
