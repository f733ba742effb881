"""The dependency graph of jobs, as text and as nodes and edges."""
