"""`rota config`: the home's `rota.toml`, read and changed; a running scheduler is told."""

from __future__ import annotations

import argparse
import json
from contextlib import suppress

from rota.cli.parser import add_actions
from rota.cli.terminal import say, say_json
from rota.client.ask.scheduler import reload
from rota.client.problem import Broken, NotRunning
from rota.client.session import Session
from rota.home import Home, find_home


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = add_actions(
        parser,
        {
            "list": "every key with its value",
            "get": "one key's value",
            "set": "change one key; a running scheduler takes it up at once",
        },
    )
    actions["get"].add_argument("key", metavar="KEY", help="as `rota config list` names it, for example pools.global")
    actions["set"].add_argument("key", metavar="KEY")
    actions["set"].add_argument("value", metavar="VALUE", help="`default` takes the key out of the file")


def run(args: argparse.Namespace) -> int:
    home = find_home(args.home)
    if args.action == "set":
        return _set(home, args.key, args.value, as_json=args.json)
    from rota import config

    loaded = config.load(home.config)
    if args.action == "get":
        value = config.get(loaded, args.key)
        if args.json:
            say_json({args.key: value})
        else:
            say(text(value))
    elif args.json:
        say_json(config.listing(loaded))
    else:
        for key, value in config.listing(loaded).items():
            say(f"{key} = {text(value)}")
    return 0


def text(value: object) -> str:
    """As `config set` takes it back."""
    if value is None:
        return "default"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _set(home: Home, key: str, value: str, *, as_json: bool) -> int:
    from rota import config

    home.prepare()
    changed = config.edit(home.config, key, value)
    with suppress(NotRunning, Broken):  # Without a scheduler the next start reads the file.
        Session(home, starts=False).ask(reload())
    if as_json:
        say_json({key: config.get(changed, key)})
    return 0
