"""Rota: a durable scheduler for the work of AI agents, LLM pipelines and any other command.

import rota

with rota.Client() as client:
    job = client.submit(["make", "test"]).job
    print(client.wait(job.id).status)
"""

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.errors import (
        BadRequest,
        Busy,
        ConfigError,
        Conflict,
        Deferred,
        ForeignOrigin,
        HeadersTooLarge,
        HomeError,
        InFlight,
        InvalidInput,
        KeyReused,
        MethodNotAllowed,
        Misdirected,
        NotFound,
        OutOfRange,
        RotaError,
        StorageFull,
        StoreAway,
        StoreError,
        TargetTooLong,
        TooLarge,
        TooSlow,
        Unauthorized,
        Unavailable,
        UnsupportedMedia,
        WaitOver,
    )
    from rota.sdk import AsyncClient, Client

__all__ = [
    "AsyncClient",
    "BadRequest",
    "Busy",
    "Client",
    "ConfigError",
    "Conflict",
    "Deferred",
    "ForeignOrigin",
    "HeadersTooLarge",
    "HomeError",
    "InFlight",
    "InvalidInput",
    "KeyReused",
    "MethodNotAllowed",
    "Misdirected",
    "NotFound",
    "OutOfRange",
    "RotaError",
    "StorageFull",
    "StoreAway",
    "StoreError",
    "TargetTooLong",
    "TooLarge",
    "TooSlow",
    "Unauthorized",
    "Unavailable",
    "UnsupportedMedia",
    "WaitOver",
    "__version__",
]

if not TYPE_CHECKING:  # a type checker is to know every name

    def __getattr__(name: str) -> object:
        """The clients and their errors, when somebody asks for them: every command imports this package."""
        if name not in __all__:
            raise AttributeError(f"module 'rota' has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module("rota.sdk" if name.endswith("Client") else "rota.errors"), name)
