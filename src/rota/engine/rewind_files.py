"""File changes of a rewind, after its commit and before anything starts.

The commit is decisive. A crash or a full disk after it loses nothing: the next start of a job archives the files of its
previous run (`job_files.py`), and the next start of a scheduler removes the merge sentinels of rewound jobs.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from rota import job_files
from rota.db.session import AnyReader
from rota.engine.transaction import Transaction
from rota.ids import JobId, RunId, format_job_id
from rota.kernel.artifacts import ArtifactPaths, sentinel_files

log = logging.getLogger("rota.engine")


def clean_up_after_commit(
    tx: Transaction, runs: Mapping[JobId, RunId], sentinels: Sequence[str], warnings: list[str]
) -> None:
    """Archive the files of these runs and remove these sentinels after the commit; failures become warnings."""
    if runs or sentinels:
        tx.effects.on_commit.append(partial(_clean_up, tx.settings.artifact_paths.jobs, runs, sentinels, warnings))


def _clean_up(jobs: str, runs: Mapping[JobId, RunId], sentinels: Sequence[str], warnings: list[str]) -> None:
    for job, run in runs.items():
        try:
            job_files.archive_run_files(f"{jobs}/{job}", run)
        except OSError as error:
            _add_warning(
                warnings, f"cannot archive the logs of {format_job_id(job)}; its next start archives them: {error}"
            )
    remove_sentinels(sentinels, warnings)


def find_stale_sentinels(reader: AnyReader, paths: ArtifactPaths) -> list[str]:
    """Return the sentinels that a rewind should have removed. Called when a scheduler starts."""
    return [sentinel.path for sentinel in sentinel_files(reader.artifacts.rewound(), paths)]


def remove_sentinels(sentinels: Sequence[str], warnings: list[str]) -> None:
    for path in sentinels:
        try:
            Path(path).unlink(missing_ok=True)
        except OSError as error:
            _add_warning(warnings, f"cannot remove a merge sentinel, remove it by hand: {error}")


def _add_warning(warnings: list[str], text: str) -> None:
    log.warning("%s", text)
    warnings.append(text)
