"""Composition root: the only place that picks adapters. `harness.cli` calls it, nothing else does."""
