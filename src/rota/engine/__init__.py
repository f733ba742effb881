"""The loops: dispatch, finish, recover. Driven by events, never by polling."""
