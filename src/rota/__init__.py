"""Rota: a durable scheduler for the work of AI agents, LLM pipelines and any other command."""

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.errors import (
        Conflict,
        Deferred,
        InFlight,
        InvalidInput,
        KeyReused,
        NotFound,
        RotaError,
        StorageFull,
        Unavailable,
        WaitOver,
    )  # fmt: skip
    from rota.sdk import AsyncClient, Client

__all__ = [
    "AsyncClient", "Client", "Conflict", "Deferred", "InFlight", "InvalidInput", "KeyReused", "NotFound", "RotaError",
    "StorageFull", "Unavailable", "WaitOver", "__version__",
]  # fmt: skip


def __getattr__(name: str) -> object:
    """The client and its errors, when somebody asks for them: `rota` is imported by every command."""
    if name not in __all__:
        raise AttributeError(f"module 'rota' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("rota.sdk" if name.endswith("Client") else "rota.errors"), name)
