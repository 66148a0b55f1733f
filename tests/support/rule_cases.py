"""Builders of single facts for rule tests: a request, its payload, what was seen and what was counted."""

from __future__ import annotations

from collections.abc import Mapping

from harness.model.counting import Counter, CounterDelta, Expectation, Increase, Missing, WindowCounters
from harness.model.observation import Completed, Failed, FailureKind, Observation, Stamps, Usage
from harness.model.payload import Payload, PlantedValue
from harness.model.planned import PlannedRequest
from harness.model.screening import Arm, EngineSpec
from harness.rules.facts import RequestWindow

BS, CHUNK = 32, 256
OFF = Arm(name="off", reach="none")
ON = Arm(name="on", reach="all", services=("pool",))
NATIVE = Arm(name="native", reach="replica")


def engine(**values: object) -> EngineSpec:
    facts: dict = {
        "kind": "vllm",
        "model": "m",
        "tokenizer": "t",
        "replicas": (),
        "block_size": BS,
        "chunk_size": CHUNK,
    }
    return EngineSpec(**(facts | values))


def request(**values: object) -> PlannedRequest:
    facts: dict = {
        "key": "chains/8k/0/cold",
        "seq": 0,
        "pair": 1,
        "workload": "chains",
        "unit": "chains/8k/0",
        "step": "cold",
        "role": "cold",
        "turn": 0,
        "size": "8k",
        "nominal_tokens": 2500,
        "placement": None,
        "window": None,
        "session": None,
        "replica": "A",
        "payload_id": "p",
        "after_same_replica": (),
        "after_any_replica": (),
        "max_tokens": 64,
        "forced_tokens": None,
        "check": "exact",
        "answer_in_history": False,
        "time_scale": 1.0,
        "warmup": False,
    }
    return PlannedRequest(**(facts | values))


def local(**values: object) -> PlannedRequest:
    return request(step="local-1", role="local", after_same_replica=("p",), after_any_replica=("p",), **values)


def cross(**values: object) -> PlannedRequest:
    return request(step="cross", role="cross", replica="B", after_any_replica=("p",), **values)


def payload(n: int = 2513, **values: object) -> Payload:
    facts: dict = {
        "payload_id": "p",
        "namespace": "ns",
        "salt": "ns",
        "sha256": "0" * 64,
        "nbytes": 10,
        "prompt_tokens": n,
        "path": "p.json",
        "values": (PlantedValue(name="alpha", value=123456, token_position=5),),
        "expected": {"alpha": 123456},
        "lcp": {"p": n},
        "lcp_with_answer": {"p": n},
        "largest_foreign_lcp": 0,
    }
    return Payload(**(facts | values))


def seen(
    n: int = 2513, cached: int | None = 0, *, text: str = '{"alpha": 123456}', completion: int = 16, **values: object
) -> Observation:
    facts: dict = {
        "replica": "A",
        "url": "http://a",
        "http_status": 200,
        "stamps": Stamps(
            start_ns=0, first_content_ns=1_000_000_000, last_content_ns=1_100_000_000, end_ns=1_200_000_000
        ),
        "stamp_source": "kernel",
        "outcome": Completed(finish_reason="stop"),
        "usage": Usage(prompt_tokens=n, completion_tokens=completion, cached_tokens=cached),
        "content": text,
        "reasoning": "",
    }
    return Observation(**(facts | values))


def failed(kind: FailureKind = FailureKind.EMPTY_SUCCESS) -> Observation:
    return seen(outcome=Failed(kind=kind, detail="as captured"), usage=None, text="")


def deltas(**values: float | CounterDelta) -> dict[Counter, CounterDelta]:
    return {
        Counter(name): Increase(before=0, after=value) if isinstance(value, int | float) else value
        for name, value in values.items()
    }


def counted(
    n: int = 2513, hits: int = 0, external: int = 0, *, connector: bool = True, **more: float | CounterDelta
) -> dict[Counter, CounterDelta]:
    """What an honest replica counts for one request."""
    base: dict = {
        "local_queries": n,
        "local_hits": hits,
        "prompt_tokens": n,
        "computed_tokens": n - hits - external,
        "external_queries": n - hits if connector else 0,
        "external_hits": external,
        "preemptions": 0,
    }
    return deltas(**(base | more))


IDLE = deltas(local_queries=0, local_hits=0, prompt_tokens=0, external_queries=0, external_hits=0)
NOTHING = Missing(reason="not exposed")


def pool(hit: float = 0, loaded: float = 0, **more: float | CounterDelta) -> dict[Counter, CounterDelta]:
    return deltas(pool_hit_tokens=hit, pool_loaded_chunks=loaded, **more)


def window(
    req: PlannedRequest,
    counters: Mapping[Counter, CounterDelta],
    expected: tuple[int, int, int, int],
    *,
    arm: Arm = ON,
    observation: Observation | None = None,
    other: Mapping[Counter, CounterDelta] = IDLE,
    pool_counts: Mapping[Counter, CounterDelta] | None = None,
    body: Payload | None = None,
    **engine_values: object,
) -> RequestWindow:
    n = counters.get(Counter.PROMPT_TOKENS)
    tokens = n.delta if isinstance(n, Increase) else 2513
    hits = sum(
        d.delta for c in (Counter.LOCAL_HITS, Counter.EXTERNAL_HITS) if isinstance(d := counters.get(c), Increase)
    )
    targets = {req.replica: counters, ("B" if req.replica == "A" else "A"): other}
    if pool_counts is not None:
        targets["pool"] = pool_counts
    return RequestWindow(
        request=req,
        payload=body or payload(tokens),
        observation=observation or seen(tokens, hits),
        counters=WindowCounters(deltas=targets),
        expectation=Expectation(
            local_min=expected[0], local_max=expected[1], external_min=expected[2], external_max=expected[3]
        ),
        arm=arm,
        engine=engine(**engine_values),
        replicas=("A", "B"),
        pools=("pool",) if pool_counts is not None else (),
        block=1,
    )
