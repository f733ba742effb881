"""`restore`: a home becomes what it was when the backup was made, and nothing that was there is lost.

    the file            checked whole, with the names of the files in it, before anything is touched
    rota.db             the backup's; the one that was there is kept
    rota.toml           the backup's where the home has none, without `store.url`; else the home's own stays
    jobs/<id>           files that are there stay; those of a job that had not started then are kept aside

Numbers that were given out since are not given out again where that can be known: from the database that was there,
from the jobs' directories, and from the supervisor's journal, whose generation the next scheduler must exceed.
What was running then is for recovery to settle, at the next start.
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
from rota.command.backup import CONFIG, Contents, contents_of, sync
from rota.core.event import Event
from rota.core.run import CANCELLED, Conclusion
from rota.core.slot import SlotState
from rota.core.status import Status
from rota.engine.mirror import META as MIRRORED
from rota.errors import Conflict, InvalidInput, NotFound, RotaError, StoreError
from rota.executor.supervisor.history import History
from rota.home import Home
from rota.ids import JobId
from rota.occupancy import sole_occupant
from rota.store.copy import Progress, copy
from rota.store.moment import to_stored
from rota.store.open import open_store
from rota.store.session import Session
from rota.store.sqlite.backup import Numbers, archive, copy_file, fold, look_through, numbers_in
from rota.store.sqlite.store import SqliteStore

_NEW = "rota.db.restored"
_PAGE = 500


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    contents: Contents
    store: str
    kept: str | None
    """The directory with what was there before."""
    config: str | None
    """Where the backup's settings are now; none when it has none or they are the same as the home's."""
    is_url_dropped: bool


def restore(home: Home, file: Path, *, force: bool, now: datetime, progress: Progress) -> Restored:
    _check_file(file)
    home.prepare()
    with sole_occupant(home):
        url = config.load(home.config).store.url
        if url is None and home.database.exists() and not force:
            raise Conflict(f"{home.root} has a database already; --force restores all the same, and keeps it beside")
        contents = contents_of(file)
        new, kept = home.root / _NEW, _place_for_the_old(home, now)
        _remove(new)
        try:
            copy_file(file, new, lambda done, total: progress("pages", done, total), is_still=True)
            _take_up(new, home, contents, now)
            if url is not None:
                copy(SqliteStore(new), open_store(url), progress)
            unstarted = _unstarted(new, home)
            settings, is_url_dropped = _take_files(file, home, without=unstarted)
            _keep_jobs(unstarted, home, kept)
            if url is None:
                _put_in_place(new, home, kept)
        finally:
            _remove(new)
        return Restored(
            contents=contents,
            store=str(home.database) if url is None else open_store(url).name,
            kept=str(kept) if kept.exists() else None,
            config=settings,
            is_url_dropped=is_url_dropped,
        )


def _check_file(file: Path) -> None:
    if not file.exists():
        raise NotFound(f"there is no file {file}")
    if not file.is_file():
        raise InvalidInput(f"{file} is not a file")
    try:
        look_through(file)
        with archive(file) as backup:
            for name in backup.files():
                _job_of(name)
    except OSError as error:
        raise StoreError(f"{file} cannot be read: {error.strerror}") from error


def _place_for_the_old(home: Home, now: datetime) -> Path:
    place = home.root / f"before-restore-{now:%Y%m%dT%H%M%S}"
    others = (place.with_name(f"{place.name}-{number}") for number in itertools.count(2))
    return next(each for each in itertools.chain([place], others) if not each.exists())


def _remove(new: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        new.with_name(new.name + suffix).unlink(missing_ok=True)


# What comes with the records.


def _take_files(file: Path, home: Home, *, without: set[int]) -> tuple[str | None, bool]:
    """Where the settings are now, and whether they lost a URL. What is there stays, so this may fail half-way."""
    settings, is_url_dropped = None, False
    with archive(file) as backup:
        for name in backup.files():
            if name == CONFIG:
                settings, is_url_dropped = _take_config(b"".join(backup.parts(name)), home)
            elif _job_of(name) not in without:
                _write(home.root / name, backup.parts(name))
    return settings, is_url_dropped


def _take_config(content: bytes, home: Home) -> tuple[str | None, bool]:
    has_own = home.config.exists()
    if has_own and home.config.read_bytes() == content:
        return None, False
    place = home.root / f"{CONFIG}.backup" if has_own else home.config
    beside = home.root / f"{CONFIG}.restored"
    _write_whole(beside, content)
    url = None
    with suppress(RotaError):  # settings that cannot be used are for their owner to mend
        url = config.load(beside).store.url
        if url is not None and not has_own:
            # The records are in the home now; pointed at where they were, two schedulers would share one queue.
            config.edit(beside, "store.url", config.UNSET)
    beside.replace(place)
    return str(place), url is not None and not has_own


def _job_of(name: str) -> int | None:
    """Whose file it is; none for the settings. A backup is somebody's file: it must not write outside of the jobs'
    directories."""
    if name == CONFIG:
        return None
    parts = PurePosixPath(name).parts
    if len(parts) != 3 or parts[0] != "jobs" or not parts[1].isdecimal() or parts[2] in (".", "..") or "\0" in name:
        raise InvalidInput(f"the backup holds a file that is no job's: {name!r}")
    return int(parts[1])


def _write(path: Path, parts: Iterable[bytes]) -> None:
    if path.exists():
        return
    for directory in (path.parent.parent, path.parent):
        directory.mkdir(mode=0o700, exist_ok=True)
    beside = path.with_name(f"{path.name}.tmp")
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
        for part in parts:
            file.write(part)
    beside.replace(path)


def _write_whole(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)
    _write(path, [content])


# Numbers.


def _take_up(new: Path, home: Home, contents: Contents, now: datetime) -> None:
    """The restored records, in this version's schema, with all numbers beyond those that are known to be used."""
    with archive(new, writes=True) as backup:
        backup.drop()
    numbers = numbers_in(new)
    numbers.raise_to(_known_numbers(home))
    with closing(SqliteStore(new).session()) as session:
        session.begin()
        for noun, last in numbers.ids.items():
            session.spend(noun, last)
        session.set_meta("epoch", str(numbers.epoch))
        session.set_meta(MIRRORED, "0")  # the jobs' files are written anew, behind
        _end_slots(session, now)
        session.drop_ahead()  # what of it was taken since, and under which number, is another store's
        _tell(session, contents, now)
        session.commit()


def _end_slots(session: Session, now: datetime) -> None:
    """Those that had not begun: whoever asked for them has had his answer since, or has gone. What ran is recovered
    like anything that ran."""
    end = Conclusion(status=Status.CANCELLED, exit_code=CANCELLED, reason="restored from a backup, without its client")
    for slot in session.open_slots():
        if slot.state is not SlotState.RUNNING:
            session.end_slot(slot.id, end, now)


def _tell(session: Session, contents: Contents, now: datetime) -> None:
    data = {"made_at": contents.made_at, "home": contents.home, "jobs": contents.jobs}
    session.emit(Event(kind="scheduler.restored", at=to_stored(now), cause="restore", data=data))


def _known_numbers(home: Home) -> Numbers:
    numbers = Numbers()
    if home.database.exists():
        with suppress(StoreError):  # damaged, perhaps: that may be why it is restored
            numbers = numbers_in(home.database)
    for job in _numbered(home.jobs):
        numbers.have("job", job)
    for slot in _numbered(home.slots):
        numbers.have("slot", slot)
    history = History()
    with suppress(OSError):
        history.replay(home.supervisor_journal.read_bytes())
    for run in history.runs:
        numbers.have("run", run)
    numbers.epoch = max(numbers.epoch, history.generation)
    return numbers


def _numbered(directory: Path) -> list[int]:
    if not directory.exists():
        return []
    return sorted(int(entry.name) for entry in directory.iterdir() if entry.name.isdecimal())


# What was there.


def _unstarted(new: Path, home: Home) -> set[int]:
    """Those that have a directory and had not started when the backup was made."""
    directories = _numbered(home.jobs)
    found: set[int] = set()
    with closing(SqliteStore(new).reader()) as reader:
        for first in range(0, len(directories), _PAGE):
            page = [JobId(number) for number in directories[first : first + _PAGE]]
            found.update(job.id for job in reader.jobs(page) if job.run is None)
    return found


def _keep_jobs(unstarted: set[int], home: Home, kept: Path) -> None:
    """They start with empty logs, not behind what they wrote since."""
    for job in sorted(unstarted):
        (kept / "jobs").mkdir(mode=0o700, parents=True, exist_ok=True)
        (home.jobs / str(job)).rename(kept / "jobs" / str(job))


def _put_in_place(new: Path, home: Home, kept: Path) -> None:
    """There is a database at every moment: the old one, or the new one."""
    old = home.database
    if old.exists():
        with suppress(StoreError):
            numbers_in(old)  # SQLite would throw away the journal of what it cannot read
            fold(old)
        kept.mkdir(mode=0o700, exist_ok=True)
        _keep_database(old, kept / old.name)
        wal = old.with_name(f"{old.name}-wal")
        if wal.exists():  # it could not be taken in: it belongs to the old one
            wal.rename(kept / wal.name)
    old.with_name(f"{old.name}-shm").unlink(missing_ok=True)
    fold(new)
    sync(new)
    new.replace(old)
    sync(home.root)


def _keep_database(old: Path, place: Path) -> None:
    try:
        os.link(old, place)
    except OSError:  # a file system without links; moved away, it would be missing for a moment
        shutil.copy(old, place)
        sync(place)
