"""What a rewind does to files, after its commit and before anything starts.

The commit decides. Whoever is killed between it and this, or finds the disk full, loses nothing: a run's files are set
aside once more by who starts the next one (`leftover.py`), and the sentinels that rewound jobs are to make anew are
removed once more when a scheduler starts.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from rota import leftover
from rota.core.artifact import Places, sentinels_of
from rota.engine.work import Work
from rota.ids import JobId, RunId, show_job
from rota.store.session import Session

log = logging.getLogger("rota.engine")


def tidy(work: Work, runs: Mapping[JobId, RunId], sentinels: Sequence[str], warnings: list[str]) -> None:
    """After the commit, set aside what these runs left, and remove these files; what cannot be done is put down."""
    if runs or sentinels:
        work.afterwards.append(partial(_tidy, work.settings.places.jobs, runs, sentinels, warnings))


def _tidy(jobs: str, runs: Mapping[JobId, RunId], sentinels: Sequence[str], warnings: list[str]) -> None:
    for job, run in runs.items():
        try:
            leftover.set_aside(f"{jobs}/{job}", run)
        except OSError as error:
            _say(warnings, f"the logs of {show_job(job)} are set aside when it starts, for now they stay: {error}")
    remove(sentinels, warnings)


def left_over(session: Session, places: Places) -> list[str]:
    """Sentinels that should be gone, when a scheduler starts."""
    return [sentinel.path for sentinel in sentinels_of(session.rewound_products(), places)]


def remove(sentinels: Sequence[str], warnings: list[str]) -> None:
    for path in sentinels:
        try:
            Path(path).unlink(missing_ok=True)
        except OSError as error:
            _say(warnings, f"a merge sentinel stays, remove it by hand: {error}")


def _say(warnings: list[str], text: str) -> None:
    log.warning("%s", text)
    warnings.append(text)
