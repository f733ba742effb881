"""`rota store`: show, migrate, copy or adopt a store.

Besides `serve`, this is the only verb that opens the store directly. It holds the lock of the home while it does.
"""

from __future__ import annotations

import argparse
import os
from contextlib import ExitStack, closing

from rota.cli.confirm import format_count
from rota.cli.parser import UsageError, add_actions
from rota.cli.terminal import print_json, print_notice, print_text
from rota.home import Home, find_home
from rota.mask import mask_store_url

_HOME_STORE = "home"


def add_store_arguments(parser: argparse.ArgumentParser) -> None:
    actions = add_actions(
        parser,
        {
            "show": "Print the location of the store of the home.",
            "migrate": "Migrate the store of the home to the schema of this version.",
            "copy": "Copy a store to a new store of the same or another kind.",
            "adopt": "Take over a store on a server from a home that no longer exists.",
        },
    )
    for name in ("from", "to"):
        actions["copy"].add_argument(
            f"{name}_store",
            metavar=name.upper(),
            help=f"The store: `{_HOME_STORE}`, a database file, or postgresql://….",
        )


def run_store(args: argparse.Namespace) -> int:
    home = find_home(args.home)
    if args.action == "copy":
        return _copy(home, args.from_store, args.to_store, as_json=args.json)
    if args.action == "migrate":
        return _migrate(home, as_json=args.json)
    if args.action == "adopt":
        return _adopt(home, as_json=args.json)
    from rota.db.store import open_store

    location = open_store(address_of(home, _HOME_STORE)).name
    if args.json:
        print_json({"store": location})
    else:
        print_text(location)
    return 0


def address_of(home: Home, address: str) -> str:
    """Return the file or URL of a store: that of the home as configured, or the given one."""
    from rota import config

    if address == _HOME_STORE:
        return config.load(home.config).store.url or str(home.database)
    return address if "://" in address else os.path.abspath(address)  # noqa: PTH100 - keeps the path as it is written


def _migrate(home: Home, *, as_json: bool) -> int:
    from rota.db.copy import migrate_store
    from rota.db.store import open_store
    from rota.home import acquire_home_lock

    home.prepare()
    with acquire_home_lock(home):
        version = migrate_store(open_store(address_of(home, _HOME_STORE)))
    if as_json:
        print_json({"schema": version})
    else:
        print_notice(f"the store has schema version {version}")
    return 0


def _adopt(home: Home, *, as_json: bool) -> int:
    from rota.db.store import adopt_store, open_store
    from rota.home import acquire_home_lock

    address = address_of(home, _HOME_STORE)
    if "://" not in address:
        raise UsageError(
            f"{address} is a local file, which belongs to its home; only a store on a server can be adopted"
        )
    home.prepare()
    with acquire_home_lock(home), closing(open_store(address).session()) as session:
        session.begin()
        adopt_store(session, home)
        session.raise_epoch()  # a disconnected scheduler of the old home stops when it reconnects
        session.commit()
    if as_json:
        print_json({"store": open_store(address).name, "home": home.directory})
    else:
        print_notice("the store belongs to this home; the next start marks the runs of the old home as lost")
    return 0


def _copy(home: Home, source: str, target: str, *, as_json: bool) -> int:
    from rota.db.copy import copy_store
    from rota.db.store import open_store

    addresses = [address_of(home, store) for store in (source, target)]
    if addresses[0] == addresses[1]:
        raise UsageError("FROM and TO are the same store")
    if "://" not in addresses[0] and not os.path.exists(addresses[0]):  # noqa: PTH110
        raise UsageError(f"there is no database at {mask_store_url(addresses[0])}")
    with ExitStack() as stack:
        _lock_homes(stack, home, addresses)
        copied = copy_store(open_store(addresses[0]), open_store(addresses[1]), _print_progress)
    if as_json:
        print_json({"copied": dict(copied)})
    else:
        print_notice(
            f"copied {format_count(copied.get('job', 0), 'job')} and {format_count(copied.get('run', 0), 'run')}"
        )
        if target != _HOME_STORE and "://" in addresses[1]:
            print_notice("to use it, run `rota config set store.url URL` and then `rota up`")
    return 0


def _lock_homes(stack: ExitStack, home: Home, addresses: list[str]) -> None:
    """Lock the homes of the database files. A server refuses a second scheduler by itself, and no scheduler uses a file
    with another name."""
    from rota.home import acquire_home_lock

    directories = {os.path.dirname(address) for address in addresses if "://" not in address}  # noqa: PTH120
    homes = {directory for directory in directories if str(Home(directory).database) in addresses}
    for directory in sorted({home.directory, *homes}):
        locked_home = Home(directory)
        locked_home.prepare()
        stack.enter_context(acquire_home_lock(locked_home))


def _print_progress(table: str, done: int, total: int) -> None:
    if total and done == total:
        print_notice(f"{table}: {total:,}")
