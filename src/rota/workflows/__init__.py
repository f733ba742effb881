"""Workflow files: named jobs and their dependencies, as YAML, TOML or JSON."""
