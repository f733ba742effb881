"""The Python client: `rota.Client` is blocking, `rota.AsyncClient` is for an event loop. Both have the same methods.

client         the two classes
methods        the list of methods: each with its request builder and its response type
  calls        descriptors that turn a declaration into a method of both clients
  streams      methods that make several requests: wait, logs, events
transports     blocking and for an event loop: pooled connections, TCP addresses
"""

from rota.client.sdk.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client"]
