"""Rota, a durable scheduler for AI agents, LLM pipelines and any other command.

import rota

with rota.Client() as client:
    job = client.submit(["make", "test"]).job
    print(client.wait(job.id).status)
"""

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.sdk import AsyncClient, Client
    from rota.errors import (
        BadRequest,
        BodyTooLarge,
        ConfigError,
        Conflict,
        HeadersTooLarge,
        HomeError,
        IdempotencyKeyReused,
        InvalidInput,
        MethodNotAllowed,
        MisdirectedRequest,
        NotFound,
        OriginNotAllowed,
        QueueFull,
        RangeNotSatisfiable,
        RequestInProgress,
        RequestTimeout,
        ReservationTimeout,
        RotaError,
        ServiceUnavailable,
        StorageFull,
        StoreError,
        StoreUnavailable,
        TargetTooLong,
        TooManyConnections,
        Unauthorized,
        UnsupportedMediaType,
    )

__all__ = [
    "AsyncClient",
    "BadRequest",
    "BodyTooLarge",
    "Client",
    "ConfigError",
    "Conflict",
    "HeadersTooLarge",
    "HomeError",
    "IdempotencyKeyReused",
    "InvalidInput",
    "MethodNotAllowed",
    "MisdirectedRequest",
    "NotFound",
    "OriginNotAllowed",
    "QueueFull",
    "RangeNotSatisfiable",
    "RequestInProgress",
    "RequestTimeout",
    "ReservationTimeout",
    "RotaError",
    "ServiceUnavailable",
    "StorageFull",
    "StoreError",
    "StoreUnavailable",
    "TargetTooLong",
    "TooManyConnections",
    "Unauthorized",
    "UnsupportedMediaType",
    "__version__",
]

if not TYPE_CHECKING:  # a type checker takes the names from the imports above

    def __getattr__(name: str) -> object:
        """Import a client or an error on first use: every command imports this package and must start fast."""
        if name not in __all__:
            raise AttributeError(f"module 'rota' has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module("rota.client.sdk" if name.endswith("Client") else "rota.errors"), name)
