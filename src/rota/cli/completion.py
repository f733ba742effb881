"""`rota completion`: the script that lets a shell complete Rota's words."""

from __future__ import annotations

import argparse

from rota.cli.terminal import say

_SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "For bash: rota completion bash > ~/.local/share/bash-completion/completions/rota"
    parser.add_argument("shell", choices=_SHELLS)


def run(args: argparse.Namespace) -> int:
    import shtab

    from rota.cli.parser import full_parser

    say(shtab.complete(full_parser(), args.shell))
    return 0
