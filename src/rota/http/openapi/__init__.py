"""OpenAPI 3.1 document, generated from the endpoints.

Schemas come from the types that decode requests and encode responses, descriptions of fields from their docstrings, and
descriptions of operations from the docstrings of the handlers. `docs/openapi.json` has the document, so that a change
of the API is visible in its diff: `make openapi` writes it.
"""
