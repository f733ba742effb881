"""`rota store`: bring a store to this version's schema, or take its content to another one.

The only verb beside `serve` that works on a store itself: it has the home to itself while it does.
"""

from __future__ import annotations

import argparse
import os
from contextlib import ExitStack, closing

from rota.cli.parser import Usage, add_actions
from rota.cli.terminal import say, say_json, talk
from rota.home import Home, find_home

_SELF = "home"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = add_actions(
        parser,
        {
            "show": "where the home's records are kept",
            "migrate": "bring the home's store to this version's schema",
            "copy": "copy a whole store into a new one, of either kind",
            "adopt": "take over a store on a server from a home that is gone for good",
        },
    )
    for name in ("from", "to"):
        actions["copy"].add_argument(
            f"{name}_store", metavar=name.upper(), help=f"`{_SELF}`, a database file, or postgresql://…"
        )


def run(args: argparse.Namespace) -> int:
    home = find_home(args.home)
    if args.action == "copy":
        return _copy(home, args.from_store, args.to_store, as_json=args.json)
    if args.action == "migrate":
        return _migrate(home, as_json=args.json)
    if args.action == "adopt":
        return _adopt(home, as_json=args.json)
    from rota.store.open import open_store

    where = open_store(address_of(home, _SELF)).name
    if args.json:
        say_json({"store": where})
    else:
        say(where)
    return 0


def address_of(home: Home, asked: str) -> str:
    """The store that is meant: the home's own as configured, or another by file or URL."""
    from rota import config

    if asked == _SELF:
        return config.load(home.config).store.url or str(home.database)
    return asked if "://" in asked else os.path.abspath(asked)  # noqa: PTH100 - keeps the path as it is named


def _migrate(home: Home, *, as_json: bool) -> int:
    from rota.occupancy import sole_occupant
    from rota.store.copy import migrate
    from rota.store.open import open_store

    home.prepare()
    with sole_occupant(home):
        version = migrate(open_store(address_of(home, _SELF)))
    if as_json:
        say_json({"schema": version})
    else:
        talk(f"the store has schema {version}")
    return 0


def _adopt(home: Home, *, as_json: bool) -> int:
    from rota.occupancy import sole_occupant
    from rota.store.open import open_store
    from rota.store.owner import adopt

    address = address_of(home, _SELF)
    if "://" not in address:
        raise Usage(f"{address} lies in its home and is nobody else's; only a store on a server can be adopted")
    home.prepare()
    with sole_occupant(home), closing(open_store(address).session()) as session:
        session.begin()
        adopt(session, home)
        session.raise_epoch()  # a scheduler that was only cut off stops when it comes back
        session.commit()
    if as_json:
        say_json({"store": open_store(address).name, "home": home.directory})
    else:
        talk("the store is this home's now; what ran elsewhere is taken for lost at the next start")
    return 0


def _copy(home: Home, source: str, target: str, *, as_json: bool) -> int:
    from rota.store.copy import copy
    from rota.store.open import open_store

    addresses = [address_of(home, asked) for asked in (source, target)]
    if addresses[0] == addresses[1]:
        raise Usage("FROM and TO are the same store")
    if "://" not in addresses[0] and not os.path.exists(addresses[0]):  # noqa: PTH110
        raise Usage(f"there is no database at {addresses[0]}")
    with ExitStack() as stack:
        _have_to_ourselves(stack, home, addresses)
        copied = copy(open_store(addresses[0]), open_store(addresses[1]), _tell)
    if as_json:
        say_json({"copied": dict(copied)})
    else:
        talk(f"copied {copied.get('job', 0):,} jobs and {copied.get('run', 0):,} runs")
        if target != _SELF and "://" in addresses[1]:
            talk("to use it: rota config set store.url '<that URL>', then rota up")
    return 0


def _have_to_ourselves(stack: ExitStack, home: Home, addresses: list[str]) -> None:
    """A file's scheduler is known by the lock in its folder; a server refuses a second one by itself. No scheduler is
    at a file of another name, and its folder is none of our business."""
    from rota.occupancy import sole_occupant

    folders = {os.path.dirname(address) for address in addresses if "://" not in address}  # noqa: PTH120
    homes = {folder for folder in folders if str(Home(folder).database) in addresses}
    for folder in sorted({home.directory, *homes}):
        occupied = Home(folder)
        occupied.prepare()
        stack.enter_context(sole_occupant(occupied))


def _tell(table: str, done: int, total: int) -> None:
    if total and done == total:
        talk(f"{table}: {total:,}")
