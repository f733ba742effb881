"""Isolation of the requests of one turn: a failure affects only the request that caused it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from rota.engine.idempotency import UNRENDERABLE, IdempotentRequest, StoredResponse, find_pending, find_response
from rota.engine.transaction import Transaction, TurnRequest
from rota.errors import RotaError, StorageFull, StoreError

log = logging.getLogger("rota.engine")


def render_results(
    tx: Transaction, requests: Sequence[TurnRequest[Any]], results: list[Any]
) -> list[tuple[TurnRequest[Any], Any]]:
    """Return each request with its response, at the end of the turn."""
    groups: dict[Callable[..., Sequence[Any]], list[int]] = {}
    succeeded = [n for n, result in enumerate(results) if not isinstance(result, StoredResponse | Exception)]
    for n in succeeded:
        if (render := requests[n].render) is not None:
            groups.setdefault(render, []).append(n)
    for render, indexes in groups.items():
        for n, rendered in zip(indexes, render_group(tx, render, [results[n] for n in indexes]), strict=True):
            results[n] = rendered
    for n in succeeded:
        if (idempotency := requests[n].idempotency) is not None:
            results[n] = _remember_response(tx, idempotency, results[n])
    return list(zip(requests, results, strict=True))


def render_group(tx: Transaction, render: Callable[..., Sequence[Any]], results: list[Any]) -> Sequence[Any]:
    """Render the results. The change is committed even if rendering fails; only that request gets the error."""
    try:
        return render(tx, results)
    except (StorageFull, StoreError):
        raise
    except Exception as error:
        if len(results) > 1:
            return [render_group(tx, render, [result])[0] for result in results]
        log.exception("internal error: the result of a committed request cannot be rendered")
        return [error]


def run_in_savepoint(tx: Transaction, operation: Callable[[Transaction], Any]) -> Any:
    """Run `operation` in a savepoint. A refusal or an internal error rolls back only this operation, and is its
    result."""
    try:
        with tx.savepoint():
            return operation(tx)
    except (StorageFull, StoreError):
        raise
    except Exception as error:
        if not isinstance(error, RotaError):
            log.exception("internal error: one request was rolled back")
        return error


def run_once(tx: Transaction, idempotency: IdempotentRequest, operation: Callable[[Transaction], Any]) -> Any:
    """Run `operation`, or return the response that was stored when the request came before."""
    response = find_response(tx, idempotency.key, idempotency.digest)
    return operation(tx) if response is None else response


def store_response(tx: Transaction, key: str, digest: str, response: StoredResponse) -> None:
    """Replace the pending response by the final one. Retention may have removed the pending one; then store nothing."""
    if find_pending(tx, key, digest) is not None:
        tx.responses.remove([key])
        tx.responses.add(key, digest, response.status, response.body.decode(), tx.now)


def _remember_response(tx: Transaction, idempotency: IdempotentRequest, rendered: Any) -> Any:
    """Store the response under its key, and return it.

    If rendering fails, store a 500 as the permanent response: the request was carried out and must not run again."""
    response: StoredResponse | None = UNRENDERABLE
    if not isinstance(rendered, Exception):
        try:
            response = idempotency.render(rendered)
        except Exception as error:
            log.exception("internal error: the response to a committed request cannot be rendered")
            rendered = error
    if response is not None:
        tx.responses.add(idempotency.key, idempotency.digest, response.status, response.body.decode(), tx.now)
    return rendered
