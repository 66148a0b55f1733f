"""What is scraped, and which series an arm cannot do without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from harness.model.counting import Counter
from harness.model.screening import Reach
from harness.wire.counter_names import KIND_OF, TargetKind

_LOCAL = (Counter.LOCAL_QUERIES, Counter.LOCAL_HITS, Counter.PROMPT_TOKENS)
_EXTERNAL = (Counter.EXTERNAL_QUERIES, Counter.EXTERNAL_HITS)
_POOL = (Counter.POOL_LOOKUP_TOKENS, Counter.POOL_HIT_TOKENS, Counter.POOL_LOADED_CHUNKS, Counter.POOL_DROPPED_EVENTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One process whose `/metrics` is read. `kind` as declared (`sim`, `vllm-cpu`, `lmcache`, …)."""

    name: str
    url: str
    kind: str
    model: str | None = None
    """Served model name; samples of other models are ignored. None for services."""

    @property
    def table(self) -> TargetKind:
        """Which table of metric names applies; KeyError for a kind that exposes no known metrics."""
        return KIND_OF[self.kind]

    @property
    def is_pool(self) -> bool:
        """True for a shared cache service."""
        return self.table == "lmcache"


def required(reach: Reach) -> Mapping[TargetKind, tuple[Counter, ...]]:
    """Counters that must be exposed per kind of server: an arm with an outer tier cannot be judged without its series.

    In an arm without one (`none`) the external series may be missing; they are then Missing, never 0.
    """
    engines = _LOCAL if reach == "none" else (*_LOCAL, *_EXTERNAL)
    return MappingProxyType(
        {
            "vllm": engines,
            "lmcache": _POOL,
            "sglang": (Counter.PROMPT_TOKENS, Counter.CACHED_TOKENS),
            "llama-cpp": (Counter.COMPUTED_TOKENS,),
        }
    )
