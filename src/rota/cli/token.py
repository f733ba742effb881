"""`rota token`: what a program needs to speak to the scheduler over TCP."""

from __future__ import annotations

import argparse

from rota.cli.terminal import say, say_json
from rota.errors import RotaError
from rota.home import find_home


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--path", action="store_true", help="print where it is kept instead")
    parser.add_argument(
        "--rotate",
        action="store_true",
        help="make another one; the old one is refused from here on, also where it is in use",
    )


def run(args: argparse.Namespace) -> int:
    from rota import token

    home = find_home(args.home)
    home.prepare()
    token.ensure(home.token)
    if args.rotate:
        token.rotate(home.token)
        _tell(home.directory)
    shown = {"path": str(home.token)} if args.path else {"token": token.read(home.token), "path": str(home.token)}
    if args.json:
        say_json(shown)
    else:
        say(shown["path"] if args.path else shown["token"])
    return 0


def _tell(directory: str) -> None:
    """A scheduler that runs takes it up with the next request; told, it also ends what the old one has opened."""
    from rota.client.ask.scheduler import reload
    from rota.client.session import Session
    from rota.home import Home

    try:
        Session(Home(directory), starts=False).ask(reload())
    except RotaError:
        return  # none runs, or it has something to say about its configuration: that is for `rota status`
