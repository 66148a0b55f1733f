"""Read the counters of replicas and of the cache service around a request."""

from harness.counters.barriers import Waited, drain, quiesce, settle
from harness.counters.scraper import Scraper, difference
from harness.counters.target import Target, required

__all__ = ["Scraper", "Target", "Waited", "difference", "drain", "quiesce", "required", "settle"]
