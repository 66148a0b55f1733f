"""Which event of a request moves which counter. Called before the chunk leaves that tells the client about it."""

from __future__ import annotations

from harness.sim.job import Job
from harness.sim.replica_counters import Counters


def admitted(counters: Counters, job: Job, *, external: bool, local_off: bool) -> None:
    """Look-ups: `external` where a second tier was asked, with or without local hits (`local_off`) left out."""
    asked = job.size - (job.local if local_off else 0) if external else 0
    counters.admit(job.size, job.local, job.external, asked)
    if preempt := job.faults.get("preempt"):
        counters.preemptions += preempt.count("count")
    counters.observe("request_queue_time_seconds", (job.admitted_ns - job.arrival_ns) / 1e9)


def token(counters: Counters, job: Job, now_ns: int, *, first: bool) -> None:
    """One output token; the first one also accounts for the prompt."""
    if first:
        job.first_ns = now_ns
        counters.first_token(job.size, job.local, job.external)
        counters.observe("time_to_first_token_seconds", (now_ns - job.arrival_ns) / 1e9)
    else:
        counters.observe("inter_token_latency_seconds", (now_ns - job.last_ns) / 1e9)
    job.last_ns = now_ns
    counters.generation += 1


def finished(counters: Counters, job: Job) -> None:
    """A request ended by itself."""
    output = job.planned
    counters.success["length" if output.finish == "length" else "stop"] += 1
    counters.observe("request_prompt_tokens", job.size)
    counters.observe("request_generation_tokens", len(output.tokens))
    counters.observe("request_params_max_tokens", job.sampling.max_tokens)
    counters.observe("e2e_request_latency_seconds", (job.last_ns - job.arrival_ns) / 1e9)
    counters.observe("request_inference_time_seconds", (job.last_ns - job.admitted_ns) / 1e9)
    counters.observe("request_prefill_time_seconds", (job.first_ns - job.admitted_ns) / 1e9)
    counters.observe("request_decode_time_seconds", (job.last_ns - job.first_ns) / 1e9)


def load_failed(counters: Counters, job: Job) -> None:
    """External hits stay counted, prompt tokens are not: as seen on the real engine."""
    counters.observe("request_prompt_tokens", job.size)
    counters.success["error"] += 1
