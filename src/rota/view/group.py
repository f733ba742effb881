"""Groups as people and programs see them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from rota.ids import GroupId, show_job
from rota.store.session import Looking, Reader
from rota.wire.group import GroupForm, GroupsForm, group_form


def show(reader: Looking, group: str) -> GroupForm:
    """By id or by name."""
    found = reader.group_called(group)
    jobs = [show_job(member.job) for member in reader.members(found.id)]
    form = group_form(found, reader.tallies([found])[found.id])
    state = msgspec.json.encode((form, jobs))
    return msgspec.structs.replace(form, jobs=jobs, tag=hashlib.sha256(state).hexdigest()[:16])


def groups(reader: Reader, *, limit: int, below: GroupId | None, with_ended: bool) -> GroupsForm:
    """The newest first."""
    ids = reader.list_groups(limit=limit + 1, below=below, with_ended=with_ended)
    forms = _forms(reader, ids[:limit])
    return GroupsForm(groups=forms, next=forms[-1].id if len(ids) > limit else None)


def _forms(reader: Reader, ids: Sequence[GroupId]) -> list[GroupForm]:
    found = reader.groups(ids)
    tallies = reader.tallies(found)
    return [group_form(group, tallies[group.id]) for group in found]
