"""How a command speaks to the scheduler: HTTP over the home's socket, with nothing heavier than `socket` and `json`."""
