"""The OpenAPI 3.1 document, made from the endpoints.

Schemas come from the same types that decode requests and encode answers, what a field is for from its docstring, and
what an endpoint is for from its handler's. `docs/openapi.json` is this document as of the last change, so that a change
of the API is seen: `make openapi` writes it.
"""
