"""A workflow file: jobs with names of their own and how they hang together, as YAML, TOML or JSON."""
