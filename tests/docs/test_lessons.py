"""`docs/dev/lessons.md`: every failure of another scheduler has a test that describes it."""

from __future__ import annotations

import pytest

from tests.docs.page import named_tests, rows

COUNTS = {
    "Dispatch and claims": 12,
    "Waiting and fairness": 7,
    "Retry, groups, breaker": 9,
    "Store": 5,
    "Schedules": 3,
    "Processes": 10,
}
"""Number of lessons under each heading."""


@pytest.mark.parametrize("heading", COUNTS)
def test_every_lesson_names_tests_that_describe_it(heading: str) -> None:
    lessons = rows("dev/lessons.md", heading)
    assert len(lessons) == COUNTS[heading]
    for happened, _where, _answer, tests in lessons:
        sources = named_tests(tests)
        assert sources, f"no test for: {happened}"
        for source in sources:
            assert '"""' in source, source
            assert "LESSONS" in source, source
