"""Correctness layers that run before any timing: `kvabba validate`.

Each layer returns a `LayerResult`: passed, failed, or not validated with the part that is missing. A layer that
cannot run here is never counted as passed.
"""
