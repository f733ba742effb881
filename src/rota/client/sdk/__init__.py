"""The Python client: `rota.Client` is blocking, `rota.AsyncClient` is for an event loop. Both have the same methods.

methods          the list of methods: each with its request builder and its response type
  calls          descriptors that turn a declaration into a method of both clients
  streams        methods that make several requests: wait, logs, events
  variants       methods with several response types
client           the two classes
  blocking       blocking transport over pooled connections
  asynchronous   transport for an event loop
  pool           pooled connections
  address        TCP address of a scheduler
"""

from rota.client.sdk.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client"]
