"""The prober's thread: probes facts when the engine asks, and all facts that waiting jobs need once a second.

It sleeps while no waiting job depends on external facts. It retries after store errors; the engine reports them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from rota.db.session import Reader
from rota.db.store import Store
from rota.engine.fact_cache import FactCache
from rota.engine.facts import Observation, filter_changed, find_watched_facts, probe_facts, record_observation
from rota.engine.transaction import ProbeRequest, TurnRequest
from rota.errors import RotaError
from rota.kernel.artifacts import ArtifactPaths
from rota.kernel.facts import Fact
from rota.probe.port import Probe

log = logging.getLogger("rota.prober")

PROBE_INTERVAL = 1.0
"""Seconds between two probes of all watched facts: a manual change is noticed within twice that time."""
RETRY_INTERVAL = 1.0
_MAX_UNUSED_FACTS = 1000
"""Unused facts that the cache keeps before all of them are dropped."""


class Prober:
    def __init__(
        self,
        store: Store,
        probe: Probe,
        *,
        artifact_paths: Callable[[], ArtifactPaths],
        fact_cache: FactCache,
        submit: Callable[[TurnRequest[Any]], None],
    ) -> None:
        self._store = store
        self._probe = probe
        self._artifact_paths = artifact_paths
        self._fact_cache = fact_cache
        self._submit = submit
        self._condition = threading.Condition()
        self._requests: list[ProbeRequest] = []
        self._is_watching = True
        """Whether a waiting job may depend on external facts."""
        self._is_stopping = False
        self._next_probe_at = 0.0
        self._thread = threading.Thread(target=self._run, name="rota-prober", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, without waiting for a probe of a file system that hangs."""
        with self._condition:
            self._is_stopping = True
            self._condition.notify()
        self._thread.join(RETRY_INTERVAL)

    def submit_probes(self, probe_requests: Sequence[ProbeRequest]) -> None:
        """Probe for these requests; without requests, start watching. Called by the engine after its commit."""
        with self._condition:
            self._requests.extend(probe_requests)
            is_awake, self._is_watching = self._is_watching, True
            if probe_requests or not is_awake:
                self._condition.notify()

    def _run(self) -> None:
        reader: Reader | None = None
        while (probe_requests := self._wait_for_requests()) is not None:
            try:
                reader = reader or self._store.reader()
                self._probe_due(reader, probe_requests)
            except (RotaError, OSError) as error:
                log.warning("cannot probe facts, retrying: %s", error)
                self._retry_later(probe_requests)
            except Exception:
                log.exception("internal error: cannot probe facts, retrying")
                self._retry_later(probe_requests)
        if reader is not None:
            reader.close()

    def _wait_for_requests(self) -> list[ProbeRequest] | None:
        """Wait for requests. Return an empty list when the watched facts are due, and `None` at the end."""
        with self._condition:
            while not self._is_stopping:
                timeout = self._next_probe_at - time.monotonic() if self._is_watching else None
                if self._requests or (timeout is not None and timeout <= 0):
                    probe_requests, self._requests = self._requests, []
                    return probe_requests
                self._condition.wait(timeout)
        return None

    def _probe_due(self, reader: Reader, probe_requests: list[ProbeRequest]) -> None:
        if probe_requests:
            facts = {fact for request in probe_requests for fact in request.facts}
            self._submit_observation(probe_facts(facts, self._probe, self._fact_cache, probe_requests))
        if time.monotonic() < self._next_probe_at:
            return
        with self._condition:
            self._is_watching = False
        with reader.read_transaction():
            facts = set(find_watched_facts(reader, self._artifact_paths()))
        with self._condition:
            self._is_watching |= bool(facts)
        observation = probe_facts(facts, self._probe, self._fact_cache)
        self._next_probe_at = time.monotonic() + PROBE_INTERVAL
        changed = filter_changed(observation, self._fact_cache.observed)
        if changed.observed:
            self._submit_observation(changed)
        if len(self._fact_cache.observed) > 2 * len(facts) + _MAX_UNUSED_FACTS:
            self._drop_unused(set(self._fact_cache.observed) - facts)

    def _submit_observation(self, observation: Observation) -> None:
        def done(result: object) -> None:
            if isinstance(result, Exception) and observation.probe_requests:
                self._retry_later(observation.probe_requests)

        self._submit(TurnRequest(lambda tx: record_observation(tx, observation), done))

    def _drop_unused(self, facts: set[Fact]) -> None:
        """Drop facts that no waiting job needs. A job that began to need one since has it probed again."""
        self._submit(TurnRequest(lambda tx: tx.fact_cache.drop(facts), lambda _: None))

    def _retry_later(self, probe_requests: Sequence[ProbeRequest]) -> None:
        """Submit the requests again later, from a timer thread, because the engine's thread must not block."""
        if not self._is_stopping:
            timer = threading.Timer(RETRY_INTERVAL, self.submit_probes, [list(probe_requests)])
            timer.daemon = True
            timer.start()
        self._next_probe_at = time.monotonic() + PROBE_INTERVAL
