"""Pieces of one turn, each by itself: what one of them comes to is its own business."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from rota.engine.once import UNTOLD, Once, Told, noted_before, told_before
from rota.engine.work import Request, Work
from rota.errors import RotaError, StorageFull, StoreError

log = logging.getLogger("rota.engine")


def see_all(work: Work, requests: Sequence[Request[Any]], results: list[Any]) -> list[tuple[Request[Any], Any]]:
    """What each is told, now that the turn has decided."""
    groups: dict[Callable[..., Sequence[Any]], list[int]] = {}
    done = [n for n, result in enumerate(results) if not isinstance(result, Told | Exception)]
    for n in done:
        if (see := requests[n].see) is not None:
            groups.setdefault(see, []).append(n)
    for see, places in groups.items():
        for n, shown in zip(places, seen(work, see, [results[n] for n in places]), strict=True):
            results[n] = shown
    for n in done:
        if (once := requests[n].once) is not None:
            results[n] = _remembered(work, once, results[n])
    return list(zip(requests, results, strict=True))


def seen(work: Work, see: Callable[..., Sequence[Any]], results: list[Any]) -> Sequence[Any]:
    """What cannot be shown has happened all the same: a defect stands in its place, and in nobody else's."""
    try:
        return see(work, results)
    except (StorageFull, StoreError):
        raise
    except Exception as error:
        if len(results) > 1:
            return [seen(work, see, [result])[0] for result in results]
        log.exception("a defect: what was done cannot be shown")
        return [error]


def guarded(work: Work, act: Callable[[Work], Any]) -> Any:
    """Under a savepoint: a refusal or a defect undoes only this and is its answer; the others go on."""
    orders, afterwards, notes = len(work.orders), len(work.afterwards), len(work.notes)
    free, taken, is_withdrawn = len(work.free), set(work.taken), work.is_withdrawn
    try:
        with work.session.savepoint():
            return act(work)
    except (StorageFull, StoreError):
        raise
    except Exception as error:
        # One bad job or request never stops the others.
        del work.orders[orders:]
        del work.afterwards[afterwards:]
        del work.notes[notes:]
        del work.free[free:]
        work.taken, work.is_withdrawn = taken, is_withdrawn
        work.runs.clear()
        if not isinstance(error, RotaError):
            log.exception("a defect: this one piece of work was undone")
        return error


def unless_told(work: Work, once: Once, act: Callable[[Work], Any]) -> Any:
    """What came of it, or what it was told when it came before."""
    told = told_before(work.session, once.key, once.digest)
    return act(work) if told is None else told


def settle(work: Work, key: str, digest: str, told: Told) -> None:
    """The answer takes the place of the note. Where that is gone it was collected, and nobody asks any more."""
    if noted_before(work.session, key, digest) is not None:
        work.session.remove_answers([key])
        work.session.remember_answer(key, digest, told.status, told.body.decode(), work.now)


def _remembered(work: Work, once: Once, shown: Any) -> Any:
    """What was seen; or the defect that keeps it from being shown or told, which then is its answer for good: it was
    done, and is not to be done again."""
    told: Told | None = UNTOLD
    if not isinstance(shown, Exception):
        try:
            told = once.tell(shown)
        except Exception as error:
            log.exception("a defect: what was done cannot be told")
            shown = error
    if told is not None:
        work.session.remember_answer(once.key, once.digest, told.status, told.body.decode(), work.now)
    return shown
