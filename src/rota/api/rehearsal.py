"""A batch that is only tried: what would be stored, drawn as a graph, and nothing is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from rota.api.context import Context
from rota.api.graph import look_further, said_of
from rota.command.backpressure import Deferred
from rota.command.edge import names_of
from rota.command.submission import Submission
from rota.command.submit import AlreadyActive, Answer, Submitted
from rota.core.artifact import Outside
from rota.core.graph import Graph, Vertex
from rota.engine.work import Work
from rota.ids import JobId, show_job
from rota.view.graph import Adjacency, Picture, Wanted, adjacency_of, picture_of
from rota.view.job import Sight
from rota.wire.graph import GraphForm, PictureForm
from rota.wire.submit import RehearsalForm, RehearsedJob

Seen = tuple[Answer, Picture | Adjacency | None, Mapping[JobId, str], Outside]


async def rehearse(
    context: Context, act: Callable[[Work], Answer], members: Sequence[Submission], form: str
) -> RehearsalForm:
    see = partial(_see, sight=context.sight(), members=members, form=form)
    told, view, names, outside = await context.rehearse(act, see)
    match told:
        case Deferred():
            return RehearsalForm(result="deferred", jobs=[], graph=None, warning=told.text)
        case AlreadyActive():
            active = {key: show_job(job) for key, job in told.active.items()}
            return RehearsalForm(result="already_active", jobs=[], active=active, graph=None, warning=None)
        case Submitted():
            said: GraphForm | PictureForm | None = None
            if view is not None:
                further = await look_further(context, view, outside)
                said = await asyncio.to_thread(said_of, view, further)
            jobs = [RehearsedJob(id=show_job(job), local=names.get(job)) for job in told.jobs]
            warning = "; ".join(told.warnings) or None
            return RehearsalForm(result="rehearsed", jobs=jobs, graph=said, warning=warning)


def _see(
    work: Work, told: Sequence[Answer], *, sight: Sight, members: Sequence[Submission], form: str
) -> list[Seen]:  # fmt: skip
    outside = Outside(seen=dict(work.outside.seen), places=work.settings.places)
    seen = msgspec.structs.replace(sight, outside=outside)
    return [_seen(work, one, seen, members, form) for one in told]


def _seen(work: Work, told: Answer, sight: Sight, members: Sequence[Submission], form: str) -> Seen:
    if not isinstance(told, Submitted):
        return told, None, {}, sight.outside
    names = names_of(told.jobs, members)
    states = work.session.chains(told.jobs)
    nodes = {job: Vertex(job=job, chain=states[job].chain, status=states[job].status) for job in told.jobs}
    graph = Graph(nodes=nodes, links=work.session.links_of(nodes.values()))
    view: Picture | Adjacency
    if form == "dag":
        view = picture_of(work.session, graph, sight, max_depth=Wanted().max_depth, names=names)
    else:
        view = adjacency_of(work.session, graph, sight)
    return told, view, names, sight.outside
