"""HTTP: what programs speak, and the CLI with them."""
