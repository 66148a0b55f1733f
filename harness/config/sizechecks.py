"""Checks of sizes, placements and windows against one another and against the engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.config import schema
from harness.config.draft import Draft
from harness.config.issues import repeated
from harness.model.errors import Issue


def size_issues(draft: Draft) -> Iterator[Issue]:
    """Every issue between workloads, engine and arms."""
    for check in (_sizes, _shareable, _placement):
        yield from check(draft)


def _sizes(draft: Draft) -> Iterator[Issue]:
    engine, workloads = draft.engine, draft.workloads
    if workloads is None:
        return
    meaning: dict[str, tuple[int, str]] = {}
    for path, sizes in sized_tables(workloads):
        for index, label in repeated([size.label for size in sizes]):
            yield Issue(path=f"{path}[{index}].label", message=f"{label!r} is used twice", allowed="distinct labels")
        for index, size in enumerate(sizes):
            where = f"{path}[{index}]" if path.endswith("sizes") else path
            tokens, first = meaning.setdefault(size.label, (size.tokens, where))
            if tokens != size.tokens:
                yield Issue(
                    path=f"{where}.tokens",
                    message=f"{size.label!r} means {tokens} tokens at {first}",
                    allowed="one meaning a label",
                )
            if engine is not None and engine.kind != "sim" and size.time_scale != 1.0:
                yield Issue(
                    path=f"{where}.time_scale", message="a real engine cannot run at another speed", allowed="1.0"
                )
    if engine is not None and engine.kind != "sim" and workloads.warmup.time_scale != 1.0:
        yield Issue(
            path="workloads.warmup.time_scale", message="a real engine cannot run at another speed", allowed="1.0"
        )
    if not meaning:
        yield Issue(
            path="workloads", message="nothing would be measured", allowed="chains, sessions, generation, concurrency"
        )


def sized_tables(workloads: schema.WorkloadsTable) -> list[tuple[str, list[schema.SizeTable]]]:
    """Path in the file and size tables of each declared workload."""
    tables: list[tuple[str, list[schema.SizeTable]]] = []
    for name in ("chains", "sessions", "generation"):
        table = getattr(workloads, name)
        if table is not None:
            tables.append((f"workloads.{name}.sizes", table.sizes))
    if workloads.concurrency is not None:
        tables.append(("workloads.concurrency.size", [workloads.concurrency.size]))
    return tables


def _shareable(draft: Draft) -> Iterator[Issue]:
    """A prompt within one chunk can never be shared: an arm that shares would show no exposure, and be void."""
    engine, workloads = draft.engine, draft.workloads
    if engine is None or workloads is None or engine.chunk_size is None:
        return
    if all(arm.reach == "none" for arm in (draft.arms or {}).values()):
        return
    for path, sizes in sized_tables(workloads):
        for index, size in enumerate(sizes):
            if size.tokens <= engine.chunk_size:
                where = f"{path}[{index}].tokens" if path.endswith("sizes") else f"{path}.tokens"
                yield Issue(
                    path=where,
                    message=f"{size.tokens} tokens fill no chunk of {engine.chunk_size}",
                    allowed="more than one chunk",
                )
    warmup = workloads.warmup
    if warmup.per_replica and warmup.tokens <= engine.chunk_size:
        message = f"{warmup.tokens} tokens fill no chunk of {engine.chunk_size}: no warm-up would be transferred"
        yield Issue(path="workloads.warmup.tokens", message=message, allowed="more than one chunk")


def _placement(draft: Draft) -> Iterator[Issue]:
    workloads, engine = draft.workloads, draft.engine
    if workloads is None:
        return
    lists: list[tuple[str, Sequence[object]]] = []
    if workloads.sessions:
        lists.append(("workloads.sessions.placements", workloads.sessions.placements))
    if workloads.generation:
        lists.append(("workloads.generation.outputs", workloads.generation.outputs))
    if workloads.concurrency:
        lists.append(("workloads.concurrency.placements", workloads.concurrency.placements))
        lists.append(("workloads.concurrency.windows", workloads.concurrency.windows))
        replicas = len(engine.replicas) if engine else 0
        for index, count in enumerate(workloads.concurrency.windows):
            if replicas and count % replicas:
                message = f"{count} sessions do not divide over {replicas} replicas"
                yield Issue(
                    path=f"workloads.concurrency.windows[{index}]", message=message, allowed=f"multiples of {replicas}"
                )
    for path, values in lists:
        for index, value in repeated(list(values)):
            yield Issue(path=f"{path}[{index}]", message=f"{value!r} is named twice", allowed="each once")
