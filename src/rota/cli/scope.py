"""What `rota pause`, `resume` and `clear` are about: everything, or one pool, flow or target."""

from __future__ import annotations

import argparse

GLOBAL = "global"


def add_scope(parser: argparse.ArgumentParser) -> None:
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--pool", metavar="NAME", help="only jobs of one pool: type/…, flow/…, target/…, resource/…")
    only.add_argument("--flow", metavar="F", help="only jobs of one flow")
    only.add_argument("--target", metavar="T", help="only jobs of one target")


def scope_of(args: argparse.Namespace) -> str:
    if args.flow is not None:
        return f"flow/{args.flow}"
    if args.target is not None:
        return f"target/{args.target}"
    return GLOBAL if args.pool is None else args.pool


def said(scope: str) -> str:
    return "everything" if scope == GLOBAL else scope
