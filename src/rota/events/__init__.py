"""Events for clients: pages of history, streams, and wake-ups of requests that wait for a change."""
