"""`rota doctor`: check the environment and the home without changing or starting anything.

Each check inspects one thing and returns findings with advice.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Literal, NamedTuple

from rota import __version__
from rota.cli.rendering import tcp_text
from rota.cli.terminal import has_color, paint, print_json, print_text
from rota.client.problem import NotRunning, ResponseTimeout
from rota.client.requests.control import get_health, get_scheduler
from rota.client.session import SchedulerSession
from rota.errors import RotaError
from rota.home import NETWORK_FILE_SYSTEMS, Home, file_system_type, find_home, holder_pid, is_held

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.config import Config

_MIN_PYTHON = (3, 11)
_MIB = 1 << 20
_WARN_FREE_BYTES, _MIN_FREE_BYTES = 1024 * _MIB, 64 * _MIB
_ANSWER_TIMEOUT = 3.0
_SQLITE_MAGIC = b"SQLite format 3\0"


class Finding(NamedTuple):
    name: str
    verdict: Literal["ok", "warn", "fail"]
    text: str


def check_python(home: Home) -> list[Finding]:  # noqa: ARG001 - all checks have the same signature
    shown = f"{'.'.join(map(str, sys.version_info[:3]))} at {sys.executable}"
    if sys.version_info >= _MIN_PYTHON:
        return [Finding("python", "ok", shown)]
    return [Finding("python", "fail", f"{shown}; Rota needs {'.'.join(map(str, _MIN_PYTHON))} or later")]


def check_home(home: Home) -> list[Finding]:
    root = home.root
    if root.exists():
        if not root.is_dir():
            return [Finding("home", "fail", f"{root} is not a directory; move it, or set ROTA_HOME")]
        if not os.access(root, os.R_OK | os.W_OK | os.X_OK):
            return [Finding("home", "fail", f"{root} is not writable; change its permissions, or set ROTA_HOME")]
        return [Finding("home", "ok", str(root))]
    if os.access(_nearest_existing(root), os.W_OK | os.X_OK):
        return [Finding("home", "ok", f"{root} (created at first use)")]
    return [
        Finding(
            "home",
            "fail",
            f"{root} cannot be created in {_nearest_existing(root)}; set ROTA_HOME to a directory you own",
        )
    ]


def _nearest_existing(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.exists())


def check_disk(home: Home) -> list[Finding]:
    kind = file_system_type(home.root) or "unknown"
    findings = [Finding("file system", "ok", kind)]
    if kind in NETWORK_FILE_SYSTEMS:
        findings = [Finding("file system", "fail", f"{kind} is a network file system; set ROTA_HOME to a local disk")]
    usage = os.statvfs(_nearest_existing(home.root))
    free = usage.f_bavail * usage.f_frsize
    text = f"{free // _MIB:,} MiB free"
    if free < _MIN_FREE_BYTES:
        return [*findings, Finding("disk", "fail", f"{text}; free disk space, or jobs cannot be stored")]
    if free < _WARN_FREE_BYTES:
        return [*findings, Finding("disk", "warn", f"{text}; free disk space before it runs out")]
    return [*findings, Finding("disk", "ok", text)]


def check_config(home: Home) -> list[Finding]:
    from rota.config import load

    try:
        load(home.config)
    except RotaError as error:
        return [Finding("config", "fail", error.message)]
    return [
        Finding("config", "ok", str(home.config) if home.config.exists() else "all defaults; there is no rota.toml")
    ]


def check_database(home: Home) -> list[Finding]:
    url = _read_store_url(home)
    findings = _check_file(home) if url is None else _check_server(url)
    return _check_loss(home, url) or findings if findings[0].verdict == "ok" else findings


def _check_loss(home: Home, url: str | None) -> list[Finding]:
    """Return a finding if the store lacks records that the home had."""
    from rota.backup.loss import check_loss
    from rota.db.store import open_store

    try:
        check_loss(home, open_store(url or home.database))
    except RotaError as error:
        return [Finding("database", "fail", error.message)]
    return []


def _read_store_url(home: Home) -> str | None:
    configuration = _load_config(home)
    return None if configuration is None else configuration.store.url


def _load_config(home: Home) -> Config | None:
    """Return the configuration, or None if it cannot be read: `check_config` reports that."""
    from rota.config import load

    try:
        return load(home.config)
    except RotaError:
        return None


def _check_server(url: str) -> list[Finding]:
    from rota.db.store import check_schema_version, open_store

    try:
        store = open_store(url)
        version = check_schema_version(store)
    except RotaError as error:
        return [Finding("database", "fail", error.message)]
    state = f"schema {version}" if version else "reachable, no schema yet; created at the first start"
    return [Finding("database", "ok", f"{store.name}, {state}")]


def _check_file(home: Home) -> list[Finding]:
    """Check the header of the file: opening it as a database could create, lock or recover something."""
    try:
        with home.database.open("rb") as file:
            header = file.read(100)
    except FileNotFoundError:
        return [Finding("database", "ok", "does not exist yet; created at the first start")]
    except OSError as error:
        return [Finding("database", "fail", f"{home.database} cannot be read: {error.strerror}")]
    if not header:
        return [Finding("database", "ok", f"{home.database} is empty; initialized at the first start")]
    if not header.startswith(_SQLITE_MAGIC):
        text = f"{home.database} is not an SQLite database; restore a backup with `rota restore FILE --force`"
        return [Finding("database", "fail", text)]
    from rota.db.store import check_schema_version, open_store

    try:
        version = check_schema_version(open_store(home.database))
    except RotaError as error:
        return [Finding("database", "fail", error.message)]
    shown = f"{home.database}, {home.database.stat().st_size:,} bytes, schema {version}"
    return [Finding("database", "ok", shown)]


def check_scheduler(home: Home) -> list[Finding]:
    session = SchedulerSession(home, autostart=False)
    try:
        session.request_json(get_health(timeout=_ANSWER_TIMEOUT))
        status = session.request_json(get_scheduler())
    except NotRunning as missing:
        if is_held(home.lock):
            text = f"pid {holder_pid(home.lock)} holds the lock of the home, but does not listen on {home.socket}"
            return [Finding("scheduler", "warn", f"{text}; it recreates the socket within a second; see {home.log}")]
        stale = " (it left a stale socket: it crashed or was killed)" if missing.has_stale_socket else ""
        return [
            Finding(
                "scheduler", "ok", f"not running{stale}; `rota up` and every command that changes something start it"
            ),
            _check_lone_supervisor(home),
        ]
    except ResponseTimeout:
        text = f"pid {holder_pid(home.lock)} holds the lock of the home but did not answer within {_ANSWER_TIMEOUT:g} s"
        return [Finding("scheduler", "fail", f"{text}; see {home.log}, or kill it")]
    except RotaError as error:
        return [Finding("scheduler", "fail", error.message)]
    version = status.get("version")
    findings = [Finding("scheduler", "ok", f"running, pid {status.get('pid')}, version {version}")]
    if version != __version__:
        text = f"runs version {version}, this is {__version__}; restart it with `rota down` and `rota up`"
        findings.append(Finding("scheduler", "warn", text))
    findings += [Finding("scheduler", "warn", str(text)) for text in status.get("errors") or ()]
    findings += [Finding("tcp", "ok", text)] if (text := tcp_text(status.get("tcp") or {})) else []
    pid, silent_since = status.get("supervisor_pid"), status.get("supervisor_silent_since")
    if silent_since:
        return [*findings, Finding("supervisor", "fail", f"pid {pid} has not answered since {silent_since}")]
    if pid:
        return [
            *findings,
            Finding("supervisor", "ok", f"pid {pid}"),
            _check_cgroups(home, has_cgroups=bool(status.get("has_cgroups"))),
        ]
    return [*findings, Finding("supervisor", "warn", "not running; it starts with the first job")]


def _check_cgroups(home: Home, *, has_cgroups: bool) -> Finding:
    if has_cgroups:
        return Finding("cgroups", "ok", "each run has its own; no process can outlive a cancel")
    text = "not available: after a crash of the supervisor, a detached process can outlive a cancel"
    configuration = _load_config(home)
    if configuration is not None and configuration.scheduler.cgroups == "off":
        return Finding("cgroups", "ok", f"{text}; scheduler.cgroups is off")
    remedy = "start Rota in a delegated cgroup: systemd-run --user --scope -p Delegate=yes rota up"
    return Finding("cgroups", "ok", f"{text}; to prevent that, {remedy}")


def _check_lone_supervisor(home: Home) -> Finding:
    """Report whether a supervisor runs without a scheduler. Its lock tells, without a connection."""
    if is_held(home.supervisor_lock):
        return Finding("supervisor", "ok", "running; the next scheduler adopts its jobs")
    return Finding("supervisor", "ok", "not running")


def check_work(home: Home) -> list[Finding]:
    """Check the paths and templates of sources and targets, which the scheduler looks up only when it uses them."""
    configuration = _load_config(home)
    if configuration is None or not (configuration.sources or configuration.targets):
        return []
    from rota.work.reader import WorkReader
    from rota.work.targets import make_targets

    board = WorkReader(configuration.sources, home.root).sync()
    findings = [Finding("sources", "warn", warning) for warning in board.warnings]
    if configuration.sources and not findings:
        names = ", ".join(configuration.sources)
        findings.append(Finding("sources", "ok", f"{names}: {len(board.items):,} work items"))
    targets = make_targets(configuration.targets, home.root)
    faults = [
        Finding(
            "targets", "warn", f"targets.{name}.path: {target.path} is not a directory; create it or change the path"
        )
        for name, target in targets.items()
        if not os.path.isdir(target.path)  # noqa: PTH112 - raises no error
    ]
    templates = _list_template_names(home) if any(target.template for target in targets.values()) else None
    faults += [
        Finding("targets", "warn", f"targets.{name}.template: there is no template {target.template}; add it")
        for name, target in targets.items()
        if templates is not None and target.template and target.template not in templates
    ]
    if targets and not faults:
        faults.append(Finding("targets", "ok", ", ".join(targets)))
    return findings + faults


def _list_template_names(home: Home) -> set[str] | None:
    """Return names and ids of the templates in use; None if the database cannot be read, which is reported already."""
    from rota.db.store import check_schema_version, open_store
    from rota.ids import format_template_id

    url = _read_store_url(home)
    if url is None and not home.database.exists():
        return set()
    try:
        store = open_store(url or home.database)
        if not check_schema_version(store):
            return set()
        with closing(store.reader()) as reader, reader.read_transaction():
            templates = reader.templates.list_all()
    except RotaError:
        return None
    return {name for template in templates for name in (template.name, format_template_id(template.id))}


def check_completion(home: Home) -> list[Finding]:  # noqa: ARG001 - all checks have the same signature
    shell = Path(os.environ.get("SHELL", "bash")).name
    return [
        Finding(
            "completion", "ok", f"`rota completion {shell if shell in ('zsh', 'fish') else 'bash'}` prints the script"
        )
    ]


CHECKS: tuple[Callable[[Home], list[Finding]], ...] = (
    check_python,
    check_home,
    check_disk,
    check_config,
    check_database,
    check_scheduler,
    check_work,
    check_completion,
)


def add_doctor_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no options."""


def run_doctor(args: argparse.Namespace) -> int:
    home = find_home(args.home)
    findings = [finding for check in CHECKS for finding in check(home)]
    if args.json:
        print_json({"checks": [{"name": item.name, "verdict": item.verdict, "text": item.text} for item in findings]})
    else:
        color = has_color(sys.stdout)
        for item in findings:
            print_text(f"{paint(f'{item.verdict:<4}', item.verdict, color=color)}  {item.name:<11} {item.text}")
    return 1 if any(item.verdict == "fail" for item in findings) else 0
