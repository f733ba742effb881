"""The store's verbs are gathered from one file for each noun: none may hide another's."""

from __future__ import annotations

import pytest

from rota.store.session import Reader, Session


@pytest.mark.parametrize("kind", [Reader, Session])
def test_no_verb_of_one_noun_hides_that_of_another(kind: type[Reader | Session]) -> None:
    owners: dict[str, list[str]] = {}
    for base in kind.__mro__[:-1]:
        for name in vars(base):
            if not name.startswith("__"):
                owners.setdefault(name, []).append(base.__name__)
    assert {name: found for name, found in owners.items() if len(found) > 1} == {}
