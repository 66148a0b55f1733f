"""A simulated replica and cache service, each its own process, reached only over HTTP.

This package imports nothing else of the project and nothing imports it, so the measuring code and the
thing it measures cannot agree on the same bug.
"""

VERSION = "simulated-1.0"
"""What `/version` reports; holds the word `simulated`, so no report can pass it off as an engine."""
