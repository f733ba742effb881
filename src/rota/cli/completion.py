"""`rota completion`: print the completion script of a shell."""

from __future__ import annotations

import argparse

from rota.cli.terminal import print_text

_SHELLS = ("bash", "zsh", "fish")


def add_completion_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Example for bash: rota completion bash > ~/.local/share/bash-completion/completions/rota"
    parser.add_argument("shell", choices=_SHELLS, help="The shell.")


def run_completion(args: argparse.Namespace) -> int:
    import shtab

    from rota.cli.parser import full_parser

    print_text(shtab.complete(full_parser(), args.shell))
    return 0
