"""`pause`, `resume`, `clear`: what is held or ended of all that waits under a scope; what runs is left alone."""

from __future__ import annotations

from rota.engine import control
from rota.engine.clearing import Clearing, Order
from rota.engine.work import Work
from rota.errors import InvalidInput
from rota.ids import JobId
from rota.names import GLOBAL, is_pool_name
from rota.wire.control import PauseForm, ResumeForm


def check_scope(scope: str | None) -> str:
    """Everything unless something is named."""
    if scope is None:
        return GLOBAL
    if not is_pool_name(scope):
        raise InvalidInput(
            f"unknown scope {scope!r}; it is global (everything), or type/…, flow/…, target/… or resource/… with a name"
        ).under(".scope")
    return scope


def pause(work: Work, scope: str, *, actor: str) -> PauseForm:
    """What is paused stays paused by who was first."""
    before = work.session.pause_of(scope)
    if before is None:
        work.session.pause(scope, by=actor, now=work.now)
        control.hold(work, scope)
    by, at = (actor, work.now) if before is None else (before.by, before.at)
    warning = None
    if scope != GLOBAL and scope not in work.settings.limits.sizes and not work.session.lanes_under(scope):
        warning = f"no job has stood under {scope} so far; is that its name?"
    return PauseForm(result=before is None, scope=scope, paused_by=by, paused_at=at, warning=warning)


def resume(work: Work, scope: str, *, actor: str) -> ResumeForm:
    """Who had paused it, if anybody had; other pauses go on, and so do breakers."""
    before = work.session.pause_of(scope)
    if before is None:
        return ResumeForm(result=False, scope=scope, paused_by=None, paused_at=None)
    work.session.resume(scope, by=actor, now=work.now)
    control.let_go(work, scope)
    return ResumeForm(result=True, scope=scope, paused_by=before.by, paused_at=before.at)


def clear(work: Work, scope: str, *, actor: str) -> Clearing:
    """Begins it; it goes on in this turn and the next ones. The last number that was given is its end."""
    upto = JobId(work.session.take("job", 0) - 1)
    return control.begin_clearing(work, Order(scope=scope, upto=upto, by=actor, at=work.now))
