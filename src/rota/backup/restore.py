"""`restore`: return a home to the state of a backup, without losing its previous contents.

    the file            validated completely, with the names of the files in it, before anything changes
    rota.db             replaced by the backup's; the previous database is kept aside
    rota.toml           the backup's if the home has none, without `store.url`; otherwise the home's own
    jobs/<id>           existing files stay; those of jobs that had not started by then are moved aside

Ids that were allocated since the backup are not allocated again, as far as they are known: from the previous database,
from the job directories, and from the supervisor's journal, whose generation the next scheduler must exceed. Recovery
settles the runs of that time at the next start.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterable
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path, PurePosixPath

import msgspec

from rota import config
from rota.backup.backup import CONFIG_NAME, BackupContents, read_contents, sync_path
from rota.backup.loss import list_numbers, read_home_numbers
from rota.db.copy import CopyProgress, copy_store
from rota.db.decoding import to_micros
from rota.db.ids import IdWatermarks
from rota.db.session import Session
from rota.db.sqlite.backup import (
    checkpoint_wal,
    copy_file,
    open_archive,
    read_file_watermarks,
    remove_file,
    validate_backup,
)
from rota.db.sqlite.database import find_orphaned_log
from rota.db.sqlite.store import SqliteStore
from rota.db.store import open_store
from rota.errors import Conflict, InvalidInput, NotFound, RotaError, StoreError
from rota.home import Home, acquire_home_lock
from rota.ids import JobId
from rota.jobs.files import META_KEY as MIRRORED
from rota.kernel.events import Event
from rota.kernel.reservations import ReservationState
from rota.kernel.run import EXIT_CANCELLED, RunResult
from rota.kernel.status import Status

_NEW_DATABASE = "rota.db.restored"
_PAGE = 500


class RestoreOutcome(msgspec.Struct, frozen=True, kw_only=True):
    contents: BackupContents
    store: str
    kept_directory: str | None
    """Directory with the previous contents of the home."""
    config_path: str | None
    """Path of the backup's configuration; None if it has none or it equals the home's."""
    is_url_dropped: bool


class RestorePlan(msgspec.Struct, frozen=True, kw_only=True):
    contents: BackupContents
    store: str
    replaced_jobs: int | None
    """Number of jobs in the database that would be kept aside; None without a database."""


def plan_restore(home: Home, file: Path, *, force: bool) -> RestorePlan:
    """Return the effects of a restore without writing anything."""
    _check_file(file)
    url = config.load(home.config).store.url
    has_database = url is None and _has_database(home)
    if has_database:
        _refuse_database(home, force=force)
    return RestorePlan(
        contents=read_contents(file),
        store=str(home.database) if url is None else open_store(url).name,
        replaced_jobs=_count_jobs(home) if has_database else None,
    )


def _count_jobs(home: Home) -> int:
    """Return zero for a database that cannot be read: a restore may be the repair of it."""
    with suppress(RotaError), open_archive(home.database) as database:
        return database.count_rows("job")
    return 0


def _has_database(home: Home) -> bool:
    return home.database.exists() or find_orphaned_log(home.database) is not None


def _refuse_database(home: Home, *, force: bool) -> None:
    if not force:
        raise Conflict(f"{home.root} already has a database; use --force to restore anyway and keep it aside")


def restore(home: Home, file: Path, *, force: bool, now: datetime, progress: CopyProgress) -> RestoreOutcome:
    _check_file(file)
    home.prepare()
    with acquire_home_lock(home):
        url = config.load(home.config).store.url
        if url is None and _has_database(home):
            _refuse_database(home, force=force)
        contents = read_contents(file)
        new, kept = home.root / _NEW_DATABASE, _choose_kept_directory(home, now)
        remove_file(new)
        try:
            copy_file(file, new, lambda done, total: progress("pages", done, total), is_immutable=True)
            _migrate(new, home, contents, now)
            if url is not None:
                copy_store(SqliteStore(new), open_store(url), progress)
            unstarted = _find_unstarted(new, home)
            config_path, is_url_dropped = _restore_files(file, home, except_jobs=unstarted)
            _keep_job_files(unstarted, home, kept)
            if url is None:
                _replace_database(new, home, kept)
        finally:
            remove_file(new)
        return RestoreOutcome(
            contents=contents,
            store=str(home.database) if url is None else open_store(url).name,
            kept_directory=str(kept) if kept.exists() else None,
            config_path=config_path,
            is_url_dropped=is_url_dropped,
        )


def _check_file(file: Path) -> None:
    if not file.exists():
        raise NotFound(f"there is no file {file}")
    if not file.is_file():
        raise InvalidInput(f"{file} is not a file")
    try:
        validate_backup(file)
        with open_archive(file) as backup:
            for name in backup.files():
                _parse_job_file(name)
    except OSError as error:
        raise StoreError(f"{file} cannot be read: {error.strerror}") from error


def _choose_kept_directory(home: Home, now: datetime) -> Path:
    first = home.root / f"before-restore-{now:%Y%m%dT%H%M%S}"
    others = (first.with_name(f"{first.name}-{number}") for number in itertools.count(2))
    return next(directory for directory in itertools.chain([first], others) if not directory.exists())


def _restore_files(file: Path, home: Home, *, except_jobs: set[int]) -> tuple[str | None, bool]:
    """Restore the configuration and job files; return the path of the configuration and whether it lost a store URL.
    Existing files stay, so a restore that fails half-way can be repeated."""
    config_path, is_url_dropped = None, False
    with open_archive(file) as backup:
        for name in backup.files():
            if name == CONFIG_NAME:
                config_path, is_url_dropped = _restore_config(b"".join(backup.parts(name)), home)
            elif _parse_job_file(name) not in except_jobs:
                _write_new(home.root / name, backup.parts(name))
    return config_path, is_url_dropped


def _restore_config(content: bytes, home: Home) -> tuple[str | None, bool]:
    has_own = home.config.exists()
    if has_own and home.config.read_bytes() == content:
        return None, False
    target = home.root / f"{CONFIG_NAME}.backup" if has_own else home.config
    temporary = home.root / f"{CONFIG_NAME}.restored"
    _write_whole(temporary, content)
    url = None
    with suppress(RotaError):  # an invalid configuration is restored too, for its owner to fix
        url = config.load(temporary).store.url
        if url is not None and not has_own:
            # The records are in the home. With the URL of their source, two schedulers would share one queue.
            config.edit(temporary, "store.url", config.UNSET)
    temporary.replace(target)
    return str(target), url is not None and not has_own


def _parse_job_file(name: str) -> int | None:
    """Return the job that a file in a backup belongs to; None for the configuration. Other names are refused: a backup
    is untrusted input, and must not write outside of the job directories."""
    if name == CONFIG_NAME:
        return None
    parts = PurePosixPath(name).parts
    if len(parts) != 3 or parts[0] != "jobs" or not parts[1].isdecimal() or parts[2] in (".", "..") or "\0" in name:
        raise InvalidInput(f"the backup contains a file that belongs to no job: {name!r}")
    return int(parts[1])


def _write_new(path: Path, parts: Iterable[bytes]) -> None:
    if path.exists():
        return
    for directory in (path.parent.parent, path.parent):
        directory.mkdir(mode=0o700, exist_ok=True)
    temporary = path.with_name(f"{path.name}.tmp")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
        for part in parts:
            file.write(part)
    temporary.replace(path)


def _write_whole(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)
    _write_new(path, [content])


def _migrate(database: Path, home: Home, contents: BackupContents, now: datetime) -> None:
    """Migrate the restored records to this version's schema, and retire all ids that are known to be used."""
    with open_archive(database, is_writable=True) as backup:
        backup.remove_archive_tables()
    numbers = read_file_watermarks(database)
    numbers.merge(_used_numbers(home))
    with closing(SqliteStore(database).session()) as session:
        session.begin()
        for noun, last in numbers.ids.items():
            session.ids.retire(noun, last)
        session.meta.set("epoch", str(numbers.epoch))
        session.meta.set(MIRRORED, "0")  # so that the mirror writes all job files again
        _end_reservations(session, now)
        session.prefetch.clear()  # starts that the supervisor accepted since then are unknown to this store
        _record_event(session, contents, now)
        session.commit()


def _end_reservations(session: Session, now: datetime) -> None:
    """End the reservations that had not started: their clients have had a response since then, or are gone. Recovery
    settles those that ran."""
    end = RunResult(
        status=Status.CANCELLED, exit_code=EXIT_CANCELLED, reason="restored from a backup, without its client"
    )
    for reservation in session.reservations.list_open():
        if reservation.state is not ReservationState.RUNNING:
            session.reservations.end(reservation.id, end, now)


def _record_event(session: Session, contents: BackupContents, now: datetime) -> None:
    data = {"made_at": contents.made_at, "home": contents.home, "jobs": contents.jobs}
    session.events.emit(Event(kind="scheduler.restored", at=to_micros(now), cause="restore", data=data))


def _used_numbers(home: Home) -> IdWatermarks:
    numbers = IdWatermarks()
    if home.database.exists():
        with suppress(StoreError):  # a damaged database may be the reason for the restore
            numbers = read_file_watermarks(home.database)
    numbers.merge(read_home_numbers(home))
    return numbers


def _find_unstarted(database: Path, home: Home) -> set[int]:
    """Return the jobs that have a directory but had not started when the backup was made."""
    directories = list_numbers(home.jobs)
    unstarted: set[int] = set()
    with closing(SqliteStore(database).reader()) as reader:
        for first in range(0, len(directories), _PAGE):
            page = [JobId(number) for number in directories[first : first + _PAGE]]
            unstarted.update(job.id for job in reader.jobs.find_all(page) if job.run is None)
    return unstarted


def _keep_job_files(unstarted: set[int], home: Home, kept: Path) -> None:
    """Move the directories of these jobs aside: they start with empty logs, not after output of a later time."""
    for job in sorted(unstarted):
        (kept / "jobs").mkdir(mode=0o700, parents=True, exist_ok=True)
        (home.jobs / str(job)).rename(kept / "jobs" / str(job))


def _replace_database(database: Path, home: Home, kept: Path) -> None:
    """Replace the database. At every moment, either the old or the new database is in place."""
    old = home.database
    if old.exists():
        with suppress(StoreError):
            read_file_watermarks(old)  # SQLite would delete the journal of a database that it cannot read
            checkpoint_wal(old)
        kept.mkdir(mode=0o700, exist_ok=True)
        _keep_database(old, kept / old.name)
    wal = old.with_name(f"{old.name}-wal")
    if wal.exists():  # a log that could not be checkpointed belongs to the old database, which may be gone
        kept.mkdir(mode=0o700, exist_ok=True)
        wal.rename(kept / wal.name)
    old.with_name(f"{old.name}-shm").unlink(missing_ok=True)
    checkpoint_wal(database)
    sync_path(database)
    database.replace(old)
    sync_path(home.root)


def _keep_database(old: Path, target: Path) -> None:
    try:
        os.link(old, target)
    except OSError:  # a file system without hard links; a rename would leave no database for a moment
        shutil.copy(old, target)
        sync_path(target)
