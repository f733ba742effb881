"""`rota doctor`: look at everything Rota needs, change nothing and start nothing."""

from __future__ import annotations

import argparse
import sys

from rota.cli.checks import CHECKS
from rota.cli.terminal import has_colour, paint, say, say_json
from rota.home import find_home


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing of its own."""


def run(args: argparse.Namespace) -> int:
    home = find_home(args.home)
    findings = [finding for check in CHECKS for finding in check(home)]
    if args.json:
        say_json({"checks": [{"name": each.name, "verdict": each.verdict, "text": each.text} for each in findings]})
    else:
        colour = has_colour(sys.stdout)
        for each in findings:
            say(f"{paint(f'{each.verdict:<4}', each.verdict, colour=colour)}  {each.name:<11} {each.text}")
    return 1 if any(each.verdict == "fail" for each in findings) else 0
