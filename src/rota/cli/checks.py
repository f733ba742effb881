"""The doctor's checks: each looks at one thing and says what it found, and what to do where it is not well."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from rota import __version__
from rota.cli.render import tcp_text
from rota.client.ask.scheduler import get_scheduler, health
from rota.client.lock import is_held
from rota.client.problem import NoAnswer, NotRunning
from rota.client.session import Session
from rota.errors import RotaError
from rota.home import NETWORK_FILE_SYSTEMS, Home, file_system

_OLDEST_PYTHON = (3, 11)
_MIB = 1 << 20
_SCARCE, _TOO_LITTLE = 1024 * _MIB, 64 * _MIB
_PATIENCE = 3.0
_SQLITE_MAGIC = b"SQLite format 3\0"


class Finding(NamedTuple):
    name: str
    verdict: Literal["ok", "warn", "fail"]
    text: str


def python(home: Home) -> list[Finding]:  # noqa: ARG001 - all checks are called alike
    shown = f"{'.'.join(map(str, sys.version_info[:3]))} at {sys.executable}"
    if sys.version_info >= _OLDEST_PYTHON:
        return [Finding("python", "ok", shown)]
    return [Finding("python", "fail", f"{shown}; Rota needs {'.'.join(map(str, _OLDEST_PYTHON))} or later")]


def directory(home: Home) -> list[Finding]:
    root = home.root
    if root.exists():
        if not root.is_dir():
            return [Finding("home", "fail", f"{root} is not a directory; move it, or set ROTA_HOME")]
        if not os.access(root, os.R_OK | os.W_OK | os.X_OK):
            return [Finding("home", "fail", f"{root} cannot be written; give yourself the right, or set ROTA_HOME")]
        return [Finding("home", "ok", str(root))]
    if os.access(_existing(root), os.W_OK | os.X_OK):
        return [Finding("home", "ok", f"{root} (made at first use)")]
    return [
        Finding("home", "fail", f"{root} cannot be made in {_existing(root)}; set ROTA_HOME to a directory you own")
    ]


def _existing(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.exists())


def disk(home: Home) -> list[Finding]:
    kind = file_system(home.root) or "unknown"
    findings = [Finding("file system", "ok", kind)]
    if kind in NETWORK_FILE_SYSTEMS:
        findings = [Finding("file system", "fail", f"{kind} is a network file system; set ROTA_HOME to a local disk")]
    usage = os.statvfs(_existing(home.root))
    free = usage.f_bavail * usage.f_frsize
    text = f"{free // _MIB:,} MiB free"
    if free < _TOO_LITTLE:
        return [*findings, Finding("disk", "fail", f"{text}; make room, or jobs cannot be stored")]
    if free < _SCARCE:
        return [*findings, Finding("disk", "warn", f"{text}; make room before it runs out")]
    return [*findings, Finding("disk", "ok", text)]


def config(home: Home) -> list[Finding]:
    from rota.config import load

    try:
        load(home.config)
    except RotaError as error:
        return [Finding("config", "fail", error.message)]
    return [
        Finding("config", "ok", str(home.config) if home.config.exists() else "all defaults; there is no rota.toml")
    ]


def database(home: Home) -> list[Finding]:
    url = _store_url(home)
    return _file(home) if url is None else _server(url)


def _store_url(home: Home) -> str | None:
    """None as well where rota.toml cannot be read: `config` says that."""
    from rota.config import load

    try:
        return load(home.config).store.url
    except RotaError:
        return None


def _server(url: str) -> list[Finding]:
    from rota.store.open import check, open_store

    try:
        store = open_store(url)
        version = check(store)
    except RotaError as error:
        return [Finding("database", "fail", error.message)]
    found = f"schema {version}" if version else "answers, nothing there yet; made at the first start"
    return [Finding("database", "ok", f"{store.name}, {found}")]


def _file(home: Home) -> list[Finding]:
    """Read the file's own header: opening it as a database could create, lock or recover something."""
    try:
        with home.database.open("rb") as file:
            header = file.read(100)
    except FileNotFoundError:
        return [Finding("database", "ok", "none yet; made at the first start")]
    except OSError as error:
        return [Finding("database", "fail", f"{home.database} cannot be read: {error.strerror}")]
    if header and not header.startswith(_SQLITE_MAGIC):
        text = f"{home.database} is not an SQLite database; restore it from a backup, or move it away to start empty"
        return [Finding("database", "fail", text)]
    from rota.store.sqlite.schema import check

    try:
        version = check(home.database)
    except RotaError as error:
        return [Finding("database", "fail", error.message)]
    shown = f"{home.database}, {home.database.stat().st_size:,} bytes, schema {version}"
    return [Finding("database", "ok", shown)]


def scheduler(home: Home) -> list[Finding]:
    session = Session(home, starts=False)
    try:
        session.ask(health(patience=_PATIENCE))
        status = session.ask(get_scheduler())
    except NotRunning as missing:
        left = " (it left its socket behind: it crashed or was killed)" if missing.left_socket else ""
        return [Finding("scheduler", "ok", f"not running{left}; commands start it"), _lone_supervisor(home)]
    except NoAnswer:
        text = f"has the home's lock but does not answer within {_PATIENCE:g} s; see {home.log}, or end it: it is pid "
        return [Finding("scheduler", "fail", text + (_holder(home) or "unknown"))]
    except RotaError as error:
        return [Finding("scheduler", "fail", error.message)]
    version = status.get("version")
    findings = [Finding("scheduler", "ok", f"answers, pid {status.get('pid')}, version {version}")]
    if version != __version__:
        text = f"runs version {version}, this is {__version__}; `rota down` and `rota up` bring it up to date"
        findings.append(Finding("scheduler", "warn", text))
    findings += [Finding("scheduler", "warn", str(text)) for text in status.get("trouble") or ()]
    findings += [Finding("tcp", "ok", text)] if (text := tcp_text(status.get("tcp") or {})) else []
    pid = status.get("supervisor_pid")
    if pid:
        return [*findings, Finding("supervisor", "ok", f"pid {pid}")]
    return [*findings, Finding("supervisor", "warn", "not there; it is started with the first job")]


def _holder(home: Home) -> str:
    try:
        return home.lock.read_text().strip()
    except OSError:
        return ""


def _lone_supervisor(home: Home) -> Finding:
    """Whether one keeps children without a scheduler: its lock says so, and it need not be spoken to."""
    if is_held(home.supervisor_lock):
        return Finding("supervisor", "ok", "running; the next start adopts what it keeps")
    return Finding("supervisor", "ok", "not running")


def completion(home: Home) -> list[Finding]:  # noqa: ARG001 - all checks are called alike
    shell = Path(os.environ.get("SHELL", "bash")).name
    return [Finding("completion", "ok", f"`rota completion {shell if shell in ('zsh', 'fish') else 'bash'}` prints it")]


CHECKS: tuple[Callable[[Home], list[Finding]], ...] = (
    python, directory, disk, config, database, scheduler, completion,
)  # fmt: skip
