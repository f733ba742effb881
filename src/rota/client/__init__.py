"""HTTP client of the commands: HTTP over the home's socket, with imports no heavier than `socket` and `json`."""
