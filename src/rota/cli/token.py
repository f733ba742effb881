"""`rota token`: print or rotate the token for access over TCP."""

from __future__ import annotations

import argparse

from rota.cli.terminal import print_json, print_text
from rota.errors import RotaError
from rota.home import find_home


def add_token_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--path", action="store_true", help="Print the path of the token file instead.")
    parser.add_argument(
        "--rotate", action="store_true", help="Replace the token. The old token stops working immediately."
    )


def run_token(args: argparse.Namespace) -> int:
    from rota import token

    home = find_home(args.home)
    home.prepare()
    token.ensure(home.token)
    if args.rotate:
        token.rotate(home.token)
        _reload_scheduler(home.directory)
    result = {"path": str(home.token)} if args.path else {"token": token.read(home.token), "path": str(home.token)}
    if args.json:
        print_json(result)
    else:
        print_text(result["path"] if args.path else result["token"])
    return 0


def _reload_scheduler(directory: str) -> None:
    """Tell a running scheduler to close the connections that use the old token."""
    from rota.client.requests.control import reload
    from rota.client.session import SchedulerSession
    from rota.home import Home

    try:
        SchedulerSession(Home(directory), autostart=False).request_json(reload())
    except RotaError:
        return  # no scheduler runs, or its configuration is invalid, which `rota status` reports
