"""Real simulator processes for contract tests: started on free ports, ended by their own process object."""

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[2]
TOKENIZER = ROOT / "fixtures" / "tokenizers" / "sim"
FAST = {
    "first_token_constant": 0.001,
    "host_per_prompt_token": 0,
    "connector_per_token": 0,
    "prefill_per_token": 1e-6,
    "prefill_fresh_pair": 0,
    "prefill_cached_pair": 0,
    "transfer_floor": 0.001,
    "transfer_per_token": 0,
    "decode_step": 0.0002,
    "decode_per_context_token": 0,
}


@dataclass
class Process:
    """A running simulator process."""

    popen: subprocess.Popen
    url: str = ""
    http: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=20, trust_env=False))

    def wait_ready(self):
        line = self.popen.stdout.readline()
        found = re.search(r"(http://\S+)$", line.strip())
        assert found, f"did not start: {line!r} {self.popen.poll()}"
        self.url = found.group(1)
        return self

    def get(self, path):
        return self.http.get(self.url + path)

    def post(self, path, body=None, **headers):
        return self.http.post(self.url + path, json=body, headers=headers)

    def counters(self):
        """Every series of /metrics by name, label values behind it where they tell series apart."""
        found = {}
        for line in self.get("/metrics").text.splitlines():
            match = re.match(r"([a-zA-Z_:0-9]+)(?:\{(.*)\})? (\S+)$", line)
            if match and "_bucket" not in line:
                label = re.search(r'(?:source|finished_reason)="(\w+)"', match.group(2) or "")
                found[match.group(1) + (f":{label.group(1)}" if label else "")] = float(match.group(3))
        return found

    def stop(self):
        self.http.close()
        if self.popen.poll() is None:
            self.popen.terminate()
        code = self.popen.wait(timeout=10)
        self.popen.stdout.close()
        return code


def spawn(*arguments):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-m", "harness.sim", *map(str, arguments)]
    return Process(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment))


def replica(settings=None, *extra, model="m"):
    """Starts one; call `wait_ready` on it."""
    merged = {"time": FAST, "max_model_len": 65_536, "num_gpu_blocks": 4_096, **(settings or {})}
    options = ["--model", model, "--tokenizer", TOKENIZER, "--settings", json.dumps(merged)]
    return spawn("replica", "--port", 0, *options, *extra)


def cache(settings=None):
    """Starts one and waits for it: replicas need its address."""
    merged = {"store_delay_s": 0.01, **(settings or {})}
    return spawn("cache", "--port", 0, "--settings", json.dumps(merged)).wait_ready()


@contextlib.contextmanager
def fleet(*, replicas=2, settings=None, cache_settings=None, on=True, each=None):
    """A cache service (where `on`) and replicas, all ended at exit. `each` holds settings per replica."""
    started = []
    try:
        extra = ()
        if on:
            started.append(cache(cache_settings))
            extra = ("--cache", started[0].url)
        specific = each or [{}] * replicas
        group = [replica({**(settings or {}), **own}, *extra) for own in specific]
        started += group
        for process in group:
            process.wait_ready()
        yield (started[0] if on else None), group
    finally:
        for process in started:
            process.stop()


def text(lines=150, name="n0"):
    """File-like text with two planted values, more than 2,000 tokens by default."""
    rows = [f"{name} line {i} keeps entry {i * 37 % 101} of file {i % 7}" for i in range(lines)]
    rows[1], rows[lines // 2] = "@value alpha_port = 938639", "@value beta_limit = 123456"
    return "\n".join(rows)


def body(prompt=None, *, ask="alpha_port, beta_limit", **fields):
    """A streaming chat request."""
    content = (text() if prompt is None else prompt) + f"\n@ask {ask}"
    return {
        "model": "m",
        "messages": [{"role": "user", "content": content}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 64,
        "temperature": 0,
        **fields,
    }


def datas(response):
    """The data of every event; JSON decoded."""
    lines = [line[6:] for line in response.text.replace("\r\n", "\n").split("\n") if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def answer(response):
    """All content deltas joined."""
    chunks = [c for c in datas(response) if isinstance(c, dict) and c.get("choices")]
    return "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks)


def usage(response):
    """The usage object."""
    return next(c["usage"] for c in datas(response) if isinstance(c, dict) and c.get("usage"))


def drain(service, *, seconds=10.0):
    """Wait until no store is under way."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        manager = service.get("/status").json()["storage_manager"]
        locked = manager["l1_manager"]["write_locked_count"] + manager["l1_manager"]["read_locked_count"]
        if not locked and not manager["store_controller"]["in_flight_task_count"]:
            return
    raise AssertionError("the cache service did not come to rest")
