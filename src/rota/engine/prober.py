"""The prober's thread: looks outside when the engine asks, and at all that waiting jobs need once a second.

While nobody waits for anything outside it sleeps. Trouble with the store is the engine's to tell; here it is only
tried again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from rota.core.artifact import Places
from rota.core.fact import Fact
from rota.engine.known import Known
from rota.engine.outside import Sighting, changes, look_at, observe, watched
from rota.engine.work import Question, Request
from rota.errors import RotaError
from rota.probe.port import Probe
from rota.store.port import Store
from rota.store.session import Reader

log = logging.getLogger("rota.prober")

PERIOD = 1.0
"""Seconds between two looks at everything: a change made by hand is noticed within two."""
AGAIN = 1.0
_SPARE = 1000
"""So many things that nobody waits for any more are remembered before they are forgotten together."""


class Prober:
    def __init__(
        self,
        store: Store,
        probe: Probe,
        *,
        places: Callable[[], Places],
        known: Known,
        submit: Callable[[Request[Any]], None],
    ) -> None:
        self._store = store
        self._probe = probe
        self._places = places
        self._known = known
        self._submit = submit
        self._news = threading.Condition()
        self._questions: list[Question] = []
        self._is_watching = True
        """Somebody may wait for something outside."""
        self._is_stopping = False
        self._due = 0.0
        self._thread = threading.Thread(target=self._run, name="rota-prober", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """A look that takes its time, at a file system that does not answer, is not waited for."""
        with self._news:
            self._is_stopping = True
            self._news.notify()
        self._thread.join(AGAIN)

    def ask(self, questions: Sequence[Question]) -> None:
        """From the engine, after its commit; without a question, that somebody waits for something outside."""
        with self._news:
            self._questions.extend(questions)
            is_awake, self._is_watching = self._is_watching, True
            if questions or not is_awake:
                self._news.notify()

    def _run(self) -> None:
        reader: Reader | None = None
        while (questions := self._next()) is not None:
            try:
                reader = reader or self._store.reader()
                self._look(reader, questions)
            except (RotaError, OSError) as error:
                log.warning("could not look outside: %s", error)
                self._again(questions)
            except Exception:
                log.exception("a defect: could not look outside")
                self._again(questions)
        if reader is not None:
            reader.close()

    def _next(self) -> list[Question] | None:
        """The questions that came, or none of them when it is time to look at everything; none at all at the end."""
        with self._news:
            while not self._is_stopping:
                left = self._due - time.monotonic() if self._is_watching else None
                if self._questions or (left is not None and left <= 0):
                    questions, self._questions = self._questions, []
                    return questions
                self._news.wait(left)
        return None

    def _look(self, reader: Reader, questions: list[Question]) -> None:
        if questions:
            facts = {fact for question in questions for fact in question.facts}
            self._post(look_at(facts, self._probe, self._known, questions))
        if time.monotonic() < self._due:
            return
        with self._news:
            self._is_watching = False
        with reader.reading():
            facts = set(watched(reader, self._places()))
        with self._news:
            self._is_watching |= bool(facts)
        sighting = look_at(facts, self._probe, self._known)
        self._due = time.monotonic() + PERIOD
        news = changes(sighting, self._known.seen)
        if news.seen:
            self._post(news)
        if len(self._known.seen) > 2 * len(facts) + _SPARE:
            self._forget(set(self._known.seen) - facts)

    def _post(self, sighting: Sighting) -> None:
        def done(result: object) -> None:
            if isinstance(result, Exception) and sighting.questions:
                self._again(sighting.questions)

        self._submit(Request(lambda work: observe(work, sighting), done))

    def _forget(self, facts: set[Fact]) -> None:
        """Nobody waits for these any more; who began to meanwhile has them looked at again."""
        self._submit(Request(lambda work: work.known.drop(facts), lambda _: None))

    def _again(self, questions: Sequence[Question]) -> None:
        """In a while, from a timer: the engine's thread may be the one that says so."""
        if not self._is_stopping:
            timer = threading.Timer(AGAIN, self.ask, [list(questions)])
            timer.daemon = True
            timer.start()
        self._due = time.monotonic() + PERIOD
