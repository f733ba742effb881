"""Benchmarks of Rota, as ratios measured in one run. `make bench` writes docs/dev/benchmarks.md."""
