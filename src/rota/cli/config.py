"""`rota config`: read and change `rota.toml`. A running scheduler reloads it."""

from __future__ import annotations

import argparse
import json
from contextlib import suppress

from rota.cli.parser import add_actions
from rota.cli.terminal import print_json, print_text
from rota.client.problem import ConnectionBroken, NotRunning
from rota.client.requests.control import reload
from rota.client.session import SchedulerSession
from rota.home import Home, find_home


def add_config_arguments(parser: argparse.ArgumentParser) -> None:
    actions = add_actions(
        parser,
        {
            "list": "List every key and its value.",
            "get": "Print the value of a key.",
            "set": "Change the value of a key. A running scheduler applies it immediately.",
        },
    )
    actions["get"].add_argument(
        "key", metavar="KEY", help="The key, for example pools.global; `rota config list` lists all."
    )
    actions["set"].add_argument("key", metavar="KEY", help="The key, for example pools.global.")
    actions["set"].add_argument(
        "value", metavar="VALUE", help="The new value; `default` removes the key from the file."
    )


def run_config(args: argparse.Namespace) -> int:
    home = find_home(args.home)
    if args.action == "set":
        return _set(home, args.key, args.value, as_json=args.json)
    from rota import config

    loaded = config.load(home.config)
    if args.action == "get":
        value = config.get(loaded, args.key)
        if args.json:
            print_json({args.key: value})
        else:
            print_text(format_value(value))
    elif args.json:
        print_json(config.list_values(loaded))
    else:
        for key, value in config.list_values(loaded).items():
            print_text(f"{key} = {format_value(value)}")
    return 0


def format_value(value: object) -> str:
    """Format a value in the syntax that `config set` accepts."""
    if value is None:
        return "default"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _set(home: Home, key: str, value: str, *, as_json: bool) -> int:
    from rota import config

    home.prepare()
    changed = config.edit(home.config, key, value)
    with suppress(NotRunning, ConnectionBroken):  # without a scheduler, the next start reads the file
        SchedulerSession(home, autostart=False).request_json(reload())
    if as_json:
        print_json({key: config.get(changed, key)})
    return 0
