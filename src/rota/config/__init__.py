"""`rota.toml`: what a home has set, read whole or refused whole, and changed one key at a time.

A section is one frozen Struct and one field of `Config`: its fields are its keys, their annotations say what
they take, their defaults what holds when the line is absent. An option is here only once something obeys it.
`[pools]` is the exception: its keys are pool names (DEC-011 and CON-002 are its defaults), and the user's
lines are laid over them. `[retry.NAME]` is the other: a policy of that name, which has what `[retry]` has unless it
says otherwise. `[queue.FLOW]` is a third: the limits of that flow, off unless it sets them. `[display.list]` and
`[display.show]` are sections whose names have two parts.

    load     the file as it is; an unknown key is an error that names the nearest known one
    listing  every key with its value, as plain data
    edit     one key set in the file; comments and layout stay
"""

from __future__ import annotations

from rota.config.editing import UNSET, edit
from rota.config.reading import get, listing, load
from rota.config.section import (
    DEFAULT_POLICIES,
    DEFAULT_POOLS,
    Breaker,
    Config,
    Direct,
    Gc,
    Log,
    Queue,
    Retry,
    Scheduler,
    Server,
    Store,
)

__all__ = [
    "DEFAULT_POLICIES",
    "DEFAULT_POOLS",
    "UNSET",
    "Breaker",
    "Config",
    "Direct",
    "Gc",
    "Log",
    "Queue",
    "Retry",
    "Scheduler",
    "Server",
    "Store",
    "edit",
    "get",
    "listing",
    "load",
]
