"""Prometheus text of one scrape → the project's counters, gauges and cache configuration of one target.

A body of a vLLM replica holds some 90 families, of which a dozen matter. Lines are picked by their exact sample name
first and only those go through prometheus_client's parser (labels with commas, braces and quotes are its business):
parsing every line costs several times as much, around every request. A body that is no exposition (empty, HTML, JSON,
cut off) is an error, never zeros.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from harness.model.counting import Counter, Snapshot
from harness.wire.counter_names import TABLES, NameTable, Series, TargetKind

_SAMPLE_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*(?=[{ \t])")
_PROCESS_START = "process_start_time_seconds"
_CACHE_CONFIG = "vllm:cache_config_info"
_USAGE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "lmcache_mp_l1_usage_ratio", "sglang:token_usage")
_QUEUE_DEPTH = "lmcache_mp_event_bus_queue_depth"


class ExpositionError(ValueError):
    """The body is no Prometheus text: nothing can be said about any counter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    """What `cache_config_info` says. The label set varies by version; None = not among the labels."""

    block_size: int | None
    """Tokens of one block, after the alignment that hybrid models need."""
    num_gpu_blocks: int | None
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposition:
    """One scrape of one target. A counter that is not in `samples` was not exposed for this model: Missing, not 0."""

    samples: Mapping[Counter, float]
    names: Mapping[Counter, str]
    """The sample name each counter was read from."""
    running: float | None = None
    waiting: float | None = None
    process_start: float | None = None
    usage_ratio: float | None = None
    """Share of the cache in use, 0 … 1."""
    queue_depth: float | None = None
    """Events that the cache service has not processed yet; counters lag while it is not 0."""
    cache_config: CacheConfig | None = None
    assumed_zero: frozenset[Counter] = field(default_factory=frozenset)
    """Counters that the server creates at their first event and has not shown yet: read as 0 on purpose."""


def parse(
    text: str,
    kind: TargetKind,
    *,
    model: str | None = None,
    names: Mapping[Counter, str] | None = None,
) -> Exposition:
    """Read one body.

    Args:
        text: the body of `/metrics`.
        kind: which table of names applies (`counter_names.KIND_OF` maps declared kinds).
        model: served model name; samples of other models are ignored. None sums over all.
        names: one sample name per counter, as `resolve` found at the start; None resolves afresh.

    Raises:
        ExpositionError: empty, HTML, JSON or truncated body, or lines that cannot be parsed.
    """
    table = TABLES[kind]
    samples = _samples(text, _wanted(table))
    chosen = _resolve(samples, table, model)
    if names is not None:  # only what the server creates late may still be found, the rest stays as resolved
        chosen = {**{counter: name for counter, name in chosen.items() if counter in table.lazy}, **names}
    values = {
        counter: total
        for counter, name in chosen.items()
        if (total := _sum(samples, name, table.counters[counter], table, model)) is not None
    }
    assumed = _assumed_zero(samples, table, chosen, values)
    return Exposition(
        samples={**values, **dict.fromkeys(assumed, 0.0)},
        names={counter: name for counter, name in chosen.items() if counter in values},
        running=_gauge(samples, table.running, table, model),
        waiting=_gauge(samples, table.waiting, table, model),
        process_start=_gauge(samples, (_PROCESS_START,), None, None),
        usage_ratio=_gauge(samples, _USAGE, None, None),
        queue_depth=_gauge(samples, (_QUEUE_DEPTH,), None, None),
        cache_config=_cache_config(samples),
        assumed_zero=assumed,
    )


def resolve(text: str, kind: TargetKind, *, model: str | None = None) -> Mapping[Counter, str]:
    """Which sample name each counter has on this target: decided once, at the start of a block.

    A counter without a name is not exposed; whether that is an error depends on the arm (case MET-2).
    """
    table = TABLES[kind]
    return _resolve(_samples(text, _wanted(table)), table, model)


def missing(names: Mapping[Counter, str], kind: TargetKind, needed: Iterable[Counter]) -> tuple[str, ...]:
    """Words for every needed counter that has no series, naming the series that were looked for."""
    table = TABLES[kind]
    return tuple(
        f"{counter.value}: none of {', '.join(table.counters[counter].names)} is exposed"
        for counter in needed
        if counter not in names and counter in table.counters and counter not in table.lazy
    )


def read_snapshot(
    text: str,
    kind: TargetKind,
    *,
    target: str,
    at_ns: int,
    model: str | None = None,
    names: Mapping[Counter, str] | None = None,
) -> Snapshot:
    """`parse` as a Snapshot; a body that is no exposition becomes `error`, with no samples."""
    try:
        read = parse(text, kind, model=model, names=names)
    except ExpositionError as broken:
        return failed_snapshot(target=target, at_ns=at_ns, error=str(broken))
    return Snapshot(
        target=target,
        at_ns=at_ns,
        samples=read.samples,
        running=read.running,
        waiting=read.waiting,
        process_start=read.process_start,
    )


def failed_snapshot(*, target: str, at_ns: int, error: str) -> Snapshot:
    """A scrape that gave nothing, with why (HTTP status, refused connection, body that is no exposition)."""
    return Snapshot(target=target, at_ns=at_ns, samples={}, running=None, waiting=None, process_start=None, error=error)


def _wanted(table: NameTable) -> frozenset[str]:
    series = (name for series in table.counters.values() for name in series.names)
    marker = () if table.marker is None else (table.marker,)
    other = (_PROCESS_START, _CACHE_CONFIG, _QUEUE_DEPTH, *_USAGE)
    return frozenset((*series, *table.running, *table.waiting, *marker, *other))


def _samples(text: str, wanted: frozenset[str]) -> dict[str, list[Sample]]:
    """Samples of the wanted names, by name. The whole body is checked to be an exposition first."""
    if not text.strip():
        raise ExpositionError("empty body")
    if not text.endswith("\n"):
        raise ExpositionError(f"no exposition, or cut off: ends with {text[-60:]!r}")
    picked: list[str] = []
    for line in text.split("\n"):
        if not line or line[0] == "#":
            continue
        named = _SAMPLE_NAME.match(line)
        if named is None:
            if line.strip():
                raise ExpositionError(f"no exposition: line {line[:80]!r}")
            continue
        if named.group() in wanted:
            picked.append(line)
    return _by_name(picked)


def _by_name(lines: Sequence[str]) -> dict[str, list[Sample]]:
    found: dict[str, list[Sample]] = {}
    try:
        for family in text_string_to_metric_families("\n".join([*lines, ""])):
            for sample in family.samples:
                found.setdefault(sample.name, []).append(sample)
    except ValueError as broken:
        raise ExpositionError(f"no exposition: {broken}") from None
    return found


def _resolve(samples: Mapping[str, Sequence[Sample]], table: NameTable, model: str | None) -> dict[Counter, str]:
    chosen: dict[Counter, str] = {}
    for counter, series in table.counters.items():
        for name in series.names:
            if _sum(samples, name, series, table, model) is not None:
                chosen[counter] = name
                break
    return chosen


def _sum(
    samples: Mapping[str, Sequence[Sample]], name: str, series: Series, table: NameTable, model: str | None
) -> float | None:
    """Sum over every label but the model's and the required ones; None where no finite sample is left."""
    required = dict(series.labels)
    if model is not None and table.model_label is not None:
        required[table.model_label] = model
    values = [
        float(sample.value)
        for sample in samples.get(name, ())
        if all(sample.labels.get(label) == value for label, value in required.items())
    ]
    total = math.fsum(values)
    return total if values and math.isfinite(total) else None


def _gauge(
    samples: Mapping[str, Sequence[Sample]], names: Iterable[str], table: NameTable | None, model: str | None
) -> float | None:
    for name in names:
        total = _sum(samples, name, Series(names=(name,)), table or NameTable(counters={}), model)
        if total is not None:
            return total
    return None


def _assumed_zero(
    samples: Mapping[str, Sequence[Sample]],
    table: NameTable,
    chosen: Mapping[Counter, str],
    values: Mapping[Counter, float],
) -> frozenset[Counter]:
    """Lazily created counters are 0 while nothing of them was ever seen; one that was seen and is gone is Missing."""
    if table.marker is None or table.marker not in samples:
        return frozenset()
    return frozenset(counter for counter in table.lazy if counter not in values and counter not in chosen)


def _cache_config(samples: Mapping[str, Sequence[Sample]]) -> CacheConfig | None:
    found = samples.get(_CACHE_CONFIG)
    if not found:
        return None
    labels = dict(found[0].labels)
    return CacheConfig(
        block_size=_whole(labels.get("block_size")),
        num_gpu_blocks=_whole(labels.get("num_gpu_blocks")),
        labels=labels,
    )


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None
