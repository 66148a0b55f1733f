"""The clients under comparison: how each is started on one load, and where it writes what it measured per request.

Every tool gets one worker, the same number of streams in a closed loop, prompts of about 64 words, streamed chat
completions (inference-perf: text completions), and the project's word tokenizer where it wants one. The emitter decides
how many tokens come, and when.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.bench.peers.environments import ROOT, Environment, environment, version_of

TOKENIZER = str(ROOT / "fixtures" / "tokenizers" / "sim")
PROMPT_WORDS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Where, how many at once, how many in all, how many tokens a tool should expect; `folder` is for its files."""

    url: str
    streams: int
    requests: int
    tokens: int
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What a tool says of one request. ns; stamps on CLOCK_MONOTONIC."""

    key: str
    """x-request-id, or the request's messages as JSON: whatever finds the emitter's record again."""
    ttft_ns: float | None
    start_ns: float | None
    latency_ns: float | None
    """From the start to the last token, as the tool had it; for this project's client: as its process had it."""
    client_limited: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One row of the table."""

    name: str
    version: str
    start: Callable[[Load], list[str]]
    records: Callable[[Load, int], list[Record]]
    """(load, CLOCK_REALTIME − CLOCK_MONOTONIC) → records."""
    ours: bool = False
    variables: dict[str, str] = field(default_factory=dict)


def messages_key(body: str | bytes) -> str:
    """A request's messages, or its prompt, as a key."""
    told = json.loads(body)
    return json.dumps(told.get("messages", told.get("prompt")), sort_keys=True)


def own(connection: str) -> Tool:
    """This project's client."""

    def start(load: Load) -> list[str]:
        settings = {
            "url": load.url,
            "streams": load.streams,
            "requests": load.requests,
            "transport": "auto",
            "connection": connection,
            "out": str(load.folder / "own.json"),
        }
        return [sys.executable, "-m", "tests.bench.peers.own_client", json.dumps(settings)]

    def records(load: Load, _: int) -> list[Record]:
        told = json.loads((load.folder / "own.json").read_text())["records"]
        return [
            Record(
                key=one["key"],
                ttft_ns=None if one["first_ns"] is None else one["first_ns"] - one["start_ns"],
                start_ns=one["start_ns"],
                latency_ns=None if one["end_ns"] is None else one["end_ns"] - one["start_ns"],
                client_limited=one["limited"] is not None,
            )
            for one in told
            if one["ok"]
        ]

    words = {"reused": "connections kept", "new": "a connection per request"}[connection]
    return Tool(name=f"kvabba, {words}", version="this tree", start=start, records=records, ours=True)


def aiperf() -> Tool:
    """aiperf; its own processes besides the one worker and the one record processor are part of it."""
    home = environment("aiperf")

    def start(load: Load) -> list[str]:
        return [
            *(home.script("aiperf"), "profile", "-m", "sim", "--url", load.url, "--endpoint-type", "chat"),
            *("--streaming", "--tokenizer", TOKENIZER, "--concurrency", str(load.streams)),
            *("--request-count", str(load.requests), "--random-seed", "42"),
            *("--synthetic-input-tokens-mean", str(PROMPT_WORDS), "--output-tokens-mean", str(load.tokens)),
            *("--workers-max", "1", "--record-processors", "1", "--ui", "none", "--export-level", "records"),
            *("--no-server-metrics", "--no-gpu-telemetry", "--artifact-dir", str(load.folder)),
        ]

    def records(load: Load, offset: int) -> list[Record]:
        with (load.folder / "profile_export.jsonl").open() as lines:
            return [_aiperf_record(json.loads(line), offset) for line in lines]

    return Tool(name="aiperf", version=version_of("aiperf"), start=start, records=records)


def _aiperf_record(told: dict[str, Any], offset: int) -> Record:
    def milliseconds(name: str) -> float | None:
        metric = told["metrics"].get(name)
        return None if metric is None else metric["value"] * 1e6

    return Record(
        key=told["metadata"]["x_request_id"],
        ttft_ns=milliseconds("time_to_first_token"),
        start_ns=told["metadata"]["request_start_ns"] - offset,
        latency_ns=milliseconds("request_latency"),
    )


def guidellm() -> Tool:
    """guidellm with one worker process."""
    home = environment("guidellm")

    def start(load: Load) -> list[str]:
        output = load.folder / "guidellm.json"
        words = f"prompt_tokens={PROMPT_WORDS},output_tokens={load.tokens}"
        return [
            *(home.script("guidellm"), "run", "--disable-console-interactive"),
            *("--backend", f"kind=openai_http,target={load.url},model=sim,request_format=/v1/chat/completions"),
            *("--profile", f"kind=concurrent,streams={load.streams}"),
            *("--constraint", f"kind=max_requests,count={load.requests}"),
            *("--tokenizer", f"kind=hf_auto,model={TOKENIZER}", "--data", f"kind=synthetic_text,{words}"),
            *("--output", f"kind=json,path={output}"),
        ]

    def records(load: Load, offset: int) -> list[Record]:
        told = json.loads((load.folder / "guidellm.json").read_text())
        return [_guidellm_record(one, offset) for run in told["benchmarks"] for one in run["requests"]["successful"]]

    return Tool(
        name="guidellm",
        version=version_of("guidellm"),
        start=start,
        records=records,
        variables={"GUIDELLM__MAX_WORKER_PROCESSES": "1"},
    )


def _guidellm_record(told: dict[str, Any], offset: int) -> Record:
    timings = told["info"]["timings"]
    start, last, ttft = timings["request_start"], timings["last_token_iteration"], told["time_to_first_token_ms"]
    return Record(
        key=messages_key(json.dumps(json.loads(told["request_args"])["body"])),
        ttft_ns=None if ttft is None else ttft * 1e6,
        start_ns=None if start is None else start * 1e9 - offset,
        latency_ns=None if start is None or last is None else (last - start) * 1e9,
    )


def vllm_bench() -> Tool:
    """vLLM's serving benchmark, from the CPU build."""
    home = environment("vllm", no_dependencies=True)
    script = str(Path(__file__).with_name("vllm_bench.py"))

    def start(load: Load) -> list[str]:
        return [
            *(home.python, script, "--backend", "openai-chat", "--base-url", load.url),
            *("--endpoint", "/v1/chat/completions", "--model", "sim", "--tokenizer", TOKENIZER),
            *("--dataset-name", "random", "--random-input-len", str(PROMPT_WORDS)),
            *("--random-output-len", str(load.tokens), "--ignore-eos", "--num-prompts", str(load.requests)),
            *("--max-concurrency", str(load.streams), "--request-id-prefix", "peer-", "--disable-tqdm"),
            *("--ready-check-timeout-sec", "0", "--save-result", "--save-detailed"),
            *("--result-dir", str(load.folder), "--result-filename", "vllm.json"),
        ]

    def records(load: Load, _: int) -> list[Record]:
        told = json.loads((load.folder / "vllm.json").read_text())
        columns = zip(told["start_times"], told["ttfts"], told["itls"], told["errors"], strict=True)
        return [
            Record(
                key=f"peer-{index}",
                ttft_ns=ttft * 1e9,
                start_ns=start * 1e9,  # perf_counter is CLOCK_MONOTONIC on Linux
                latency_ns=(ttft + sum(gaps)) * 1e9,
            )
            for index, (start, ttft, gaps, error) in enumerate(columns)
            if not error
        ]

    return Tool(name="vLLM bench serve", version=version_of("vllm"), start=start, records=records)


def inference_perf() -> Tool:
    """inference-perf with one worker process; wants a newer Python than the project."""
    home = environment("inference-perf", needs=(3, 12))

    def start(load: Load) -> list[str]:
        settings = load.folder / "inference-perf.yml"
        settings.write_text(json.dumps(_inference_perf_settings(load)))  # JSON is YAML
        return [home.script("inference-perf"), "--config_file", str(settings)]

    def records(load: Load, _: int) -> list[Record]:
        (report,) = load.folder.glob("reports/**/per_request_lifecycle_metrics.json")
        return [_inference_perf_record(one) for one in json.loads(report.read_text()) if one["error"] is None]

    return Tool(name="inference-perf", version=version_of("inference-perf"), start=start, records=records)


def _inference_perf_settings(load: Load) -> dict[str, Any]:
    shown = {"request": True, "response": False, "info": False, "response_chunks": False, "computed_metrics": True}
    stage = {"num_requests": load.requests, "concurrency_level": load.streams}
    prefix = {
        "num_unique_system_prompts": load.requests,
        "num_users_per_system_prompt": 1,
        "system_prompt_len": PROMPT_WORDS // 2,
        "question_len": PROMPT_WORDS // 2,
        "output_len": load.tokens,
        "seed": 42,
    }
    return {
        # its generators of unique prompts speak the completions API only
        "api": {"type": "completion", "streaming": True},
        "data": {"type": "shared_prefix", "shared_prefix": prefix},
        "load": {
            "type": "concurrent",
            "stages": [stage],
            "num_workers": 1,
            "worker_max_concurrency": load.streams,
            "base_seed": 42,
        },
        "server": {"type": "vllm", "model_name": "sim", "base_url": load.url, "ignore_eos": True},
        "tokenizer": {"pretrained_model_name_or_path": TOKENIZER},
        "report": {"request_lifecycle": {"per_request": True, "per_request_fields": shown}},
        "storage": {"local_storage": {"path": str(load.folder / "reports")}},
    }


def _inference_perf_record(told: dict[str, Any]) -> Record:
    metrics = told["computed_metrics"]
    ttft = metrics["time_to_first_token"]
    return Record(
        key=messages_key(told["request"]),
        ttft_ns=None if ttft is None else ttft * 1e9,
        start_ns=told["start_time"] * 1e9,
        latency_ns=metrics["request_latency"] * 1e9,
    )


PEERS: Sequence[tuple[str, Callable[[], Tool]]] = (
    ("aiperf", aiperf),
    ("guidellm", guidellm),
    ("vLLM bench serve", vllm_bench),
    ("inference-perf", inference_perf),
)

__all__ = ["PEERS", "Environment", "Load", "Record", "Tool", "messages_key", "own"]


def quiet_environment(tool: Tool) -> dict[str, str]:
    """This process's environment, without what would let a peer phone home or take a proxy for loopback."""
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return {**kept, "NO_COLOR": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", **tool.variables}
