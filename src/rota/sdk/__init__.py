"""The Python client: `rota.Client` blocks, `rota.AsyncClient` is for an event loop. Both do the same.

verbs          every method, once: what builds its request, what its answer is
  verb         how a method of both is made of that
  course       what takes more than one request: wait, pages, logs, events
client         the two classes
  keeping      how asks are carried out where that blocks, as `rota.client` does it, but over connections that are kept
  streaming    the same on an event loop
  pool         the connections that are kept
  address      a scheduler over TCP
"""

from rota.sdk.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client"]
