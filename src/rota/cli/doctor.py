"""`rota doctor`: check the environment and the home without changing or starting anything."""

from __future__ import annotations

import argparse
import sys

from rota.cli.checks import CHECKS
from rota.cli.terminal import has_color, paint, print_json, print_text
from rota.home import find_home


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no options."""


def run(args: argparse.Namespace) -> int:
    home = find_home(args.home)
    findings = [finding for check in CHECKS for finding in check(home)]
    if args.json:
        print_json({"checks": [{"name": item.name, "verdict": item.verdict, "text": item.text} for item in findings]})
    else:
        color = has_color(sys.stdout)
        for item in findings:
            print_text(f"{paint(f'{item.verdict:<4}', item.verdict, color=color)}  {item.name:<11} {item.text}")
    return 1 if any(item.verdict == "fail" for item in findings) else 0
