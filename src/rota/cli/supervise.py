"""`rota supervise`: run the process that owns running children and outlives the scheduler."""

from __future__ import annotations

import argparse
import os
import sys

from rota.home import find_home


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no options."""


def run(args: argparse.Namespace) -> int:
    home = find_home(args.home)
    home.prepare()
    from rota.config import load
    from rota.executor.supervisor import protocol

    options = [protocol.NO_CGROUPS] if load(home.config).scheduler.cgroups == "off" else []
    # The exec drops the modules that reading the configuration needs, so that the supervisor stays small.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "rota.executor.supervisor", str(home.root), *options])
