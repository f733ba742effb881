"""Configuration file `rota.toml`: accepted or refused as a whole, and edited one key at a time.

A section is a frozen Struct and a field of `Config`. The fields of the Struct are the keys of the section: annotations
define the accepted values, defaults apply if the key is absent. Exceptions:

- The keys of `[pools]` are pool names. The user's keys are merged over the defaults (DEC-011, CON-002).
- `[retry.NAME]` defines the retry policy NAME, which inherits from `[retry]`.
- `[queue.FLOW]` defines the limits of the flow FLOW, which are off by default and inherit nothing.
- `[sources.NAME]` and `[targets.NAME]` define the source and the target NAME of work items.
- `[display.list]` and `[display.show]` are sections with two-part names.

    load         read the file; an unknown key is an error that suggests the nearest known key
    list_values  return every key with its value, as plain data
    edit         set one key in the file and keep comments and layout
"""

from __future__ import annotations

from rota.config.editing import UNSET, edit
from rota.config.reading import get, list_values, load, pool_sizes
from rota.config.section import (
    DEFAULT_POLICIES,
    DEFAULT_POOLS,
    BreakerConfig,
    Config,
    DirectConfig,
    GcConfig,
    LogConfig,
    QueueConfig,
    RetryConfig,
    SchedulerConfig,
    ServerConfig,
    SourceConfig,
    StoreConfig,
    TargetConfig,
)

__all__ = [
    "DEFAULT_POLICIES",
    "DEFAULT_POOLS",
    "UNSET",
    "BreakerConfig",
    "Config",
    "DirectConfig",
    "GcConfig",
    "LogConfig",
    "QueueConfig",
    "RetryConfig",
    "SchedulerConfig",
    "ServerConfig",
    "SourceConfig",
    "StoreConfig",
    "TargetConfig",
    "edit",
    "get",
    "list_values",
    "load",
    "pool_sizes",
]
