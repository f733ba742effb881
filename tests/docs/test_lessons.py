"""`docs/lessons.md`: what went wrong elsewhere is a test here, and the test says what it was."""

from __future__ import annotations

import pytest

from docs.page import named_tests, rows

COUNTS = {
    "Dispatch and claims": 12,
    "Waiting and fairness": 7,
    "Retry, groups, breaker": 9,
    "Store": 5,
    "Schedules": 3,
    "Processes": 10,
}
"""Lessons under each heading."""


@pytest.mark.parametrize("heading", COUNTS)
def test_every_lesson_names_tests_that_exist_and_say_what_happened(heading: str) -> None:
    lessons = rows("lessons.md", heading)
    assert len(lessons) == COUNTS[heading]
    for happened, _where, _answer, tests in lessons:
        found = named_tests(tests)
        assert found, f"no test for: {happened}"
        for source in found:
            assert '"""' in source, source
            assert "LESSONS" in source, source
