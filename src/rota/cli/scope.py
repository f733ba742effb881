"""Scope of `rota pause`, `resume` and `clear`: everything, or one pool, flow or target."""

from __future__ import annotations

import argparse

GLOBAL = "global"


def add_scope(parser: argparse.ArgumentParser) -> None:
    scopes = parser.add_mutually_exclusive_group()
    scopes.add_argument(
        "--pool", metavar="NAME", help="Apply only to this pool: type/…, flow/…, target/… or resource/…."
    )
    scopes.add_argument("--flow", metavar="FLOW", help="Apply only to this flow.")
    scopes.add_argument("--target", metavar="TARGET", help="Apply only to this target.")


def scope_of(args: argparse.Namespace) -> str:
    if args.flow is not None:
        return f"flow/{args.flow}"
    if args.target is not None:
        return f"target/{args.target}"
    return GLOBAL if args.pool is None else args.pool


def scope_text(scope: str) -> str:
    return "everything" if scope == GLOBAL else scope
