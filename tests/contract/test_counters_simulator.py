"""Engines and counters together on the real simulator: a chain is seen by the barriers and the counters."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from harness.counters import Scraper, Target, difference, drain, quiesce, required, settle
from harness.engines import RunningArm, launch
from harness.model.counting import Counter
from harness.model.screening import Arm, ChecksSpec, EngineSpec, ReplicaSpec, RequestSpec, ServiceSpec, Workloads
from harness.model.screening import Screening as Declared

ROOT = Path(__file__).parents[2]
ON = Arm(name="on", reach="all", args=("--cache", "{service.pool.url}"), services=("pool",))


def declared() -> Declared:
    engine = EngineSpec(
        kind="sim",
        model="sim-small",
        tokenizer="fixtures/tokenizers/sim",
        replicas=tuple(ReplicaSpec(name=name, url="http://127.0.0.1:0") for name in "AB"),
        block_size=16,
        chunk_size=64,
        start_timeout_s=60.0,
        options={"settings": {"time_scale": 0.01, "max_model_len": 4096, "num_gpu_blocks": 512}},
    )
    return Declared(
        name="chain",
        description="one chain",
        engine=engine,
        arms=(ON,),
        services=(ServiceSpec(name="pool", kind="sim-cache", url="http://127.0.0.1:0"),),
        factor=(),
        order=("on",),
        baseline="on",
        seed=1,
        request=RequestSpec(),
        workloads=Workloads(),
        checks=ChecksSpec(),
        digest="0",
    )


def targets(arm: RunningArm) -> list[Target]:
    return [Target(name=e.name, url=e.url, kind=e.kind, model=e.model) for e in arm.endpoints]


@pytest.mark.slow
async def test_cold_local_and_cross_hits_of_a_chain_are_read_exactly(tmp_path: Path) -> None:
    prompt = " ".join(f"word{number}" for number in range(400))
    arm = await launch(declared(), ON, log_dir=tmp_path, project_root=ROOT)
    try:
        async with Scraper(targets(arm)) as scraper, httpx.AsyncClient(trust_env=False, timeout=30) as client:
            await scraper.resolve(required("all"))
            seen = []
            for replica in ("A", "A", "B"):
                quiet = await quiesce(scraper)
                before = await scraper.snapshot_all()
                body = {"model": "sim-small", "prompt": prompt, "max_tokens": 4, "cache_salt": "s1"}
                answer = (
                    (await client.post(f"{arm.replicas[replica]}/v1/completions", json=body)).raise_for_status().json()
                )
                n = answer["usage"]["prompt_tokens"]
                reached = before[replica].samples[Counter.PROMPT_TOKENS] + n
                settled = await settle(scraper, {replica: {Counter.PROMPT_TOKENS: reached}})
                written = {"pool": {Counter.POOL_WRITTEN_CHUNKS: float(n // 64)}}
                drained = await drain(scraper, expected=written)
                assert (quiet.findings, settled.findings, drained.findings) == ((), (), ())
                window = difference(before, await scraper.snapshot_all())
                assert window.value(replica, Counter.LOCAL_QUERIES) == n
                seen.append((window.value(replica, Counter.LOCAL_HITS), window.value(replica, Counter.EXTERNAL_HITS)))
            loaded = window.value("pool", Counter.POOL_LOADED_CHUNKS)
        assert seen == [(0, 0), ((n - 1) // 16 * 16, 0), (0, (n - 1) // 64 * 64)]
        assert loaded == (n - 1) // 64
        prints = {item.name: item for item in arm.fingerprints()}
        assert prints["A"].simulated
        assert (prints["A"].block_size, prints["A"].num_gpu_blocks) == (16, 512)
        assert arm.health_findings() == []
    finally:
        report = await arm.stop()
    assert report.killed == ()
