"""The base classes of the session: no method of one may hide a method of another."""

from __future__ import annotations

import pytest

from rota.db.session import Reader, Session


@pytest.mark.parametrize("kind", [Reader, Session])
def test_no_base_class_hides_a_method_of_another(kind: type[Reader | Session]) -> None:
    owners: dict[str, list[str]] = {}
    for base in kind.__mro__[:-1]:
        for name in vars(base):
            if not name.startswith("__"):
                owners.setdefault(name, []).append(base.__name__)
    assert {name: bases for name, bases in owners.items() if len(bases) > 1} == {}
