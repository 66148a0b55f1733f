"""How fast the `paper` fixtures are built, beside encoding each prompt whole with the reference tokenizer.

Usage: python tests/bench/fixtures_speed.py [--screening paper] [--reference all|sample] [--json FILE]

Prints wall time, tokens a second and peak memory of the build (workers included), then the time that
`transformers`' tokenizer takes to encode every rendered prompt whole (one process, one thread, as a client that counts
its prompts does), and whether every count is identical. `sample` encodes every eighth prompt and scales.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import orjson

from harness.config import load
from harness.fixtures import FixtureSet, build, open_set
from harness.fixtures.bodies import template_kwargs
from harness.fixtures.building import PROJECT_ROOT
from harness.fixtures.reference import ReferenceTokenizer
from harness.model.screening import Screening
from harness.plan import schedule

TARGET_SECONDS = 90.0
TARGET_MIB = 1536.0
TARGET_RATIO = 5.0


def measure_build(screening: Screening, folder: Path) -> tuple[FixtureSet, float, float, float]:
    """The set, wall s, CPU s (workers included), and peak MiB: this process plus two of the largest worker."""
    plan = schedule(screening)
    began, cpu_before = time.perf_counter(), _cpu_seconds()
    fixtures = build(screening, plan, folder=folder)
    took, cpu = time.perf_counter() - began, _cpu_seconds() - cpu_before
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    workers = 2 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return fixtures, took, cpu, own + workers


def _cpu_seconds() -> float:
    """CPU s of this process and its finished children: comparable on a machine that others use too."""
    usages = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def measure_reference(screening: Screening, fixtures: FixtureSet, step: int) -> tuple[float, float, int, int]:
    """Wall s and CPU s to encode every `step`-th prompt whole, its tokens, and how many counts differ."""
    tokenizer = ReferenceTokenizer(PROJECT_ROOT / screening.engine.tokenizer)
    kwargs = template_kwargs(screening.request)
    seconds, cpu, tokens, different = 0.0, 0.0, 0, 0
    # Sorted by length, every eighth prompt is a fair sample of all lengths.
    ordered = sorted(fixtures.payloads.values(), key=lambda payload: payload.prompt_tokens)
    for payload in ordered[::step]:
        text = tokenizer.render(orjson.loads(fixtures.body(payload.payload_id))["messages"], kwargs)
        began, cpu_before = time.perf_counter(), time.process_time()
        count = len(tokenizer.encode(text))
        seconds += time.perf_counter() - began
        cpu += time.process_time() - cpu_before
        tokens += count
        different += count != payload.prompt_tokens
    return seconds, cpu, tokens, different


def main() -> int:
    """Run both and print one table; exit code 1 where a target or a count is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--screening", default="paper")
    parser.add_argument("--reference", choices=("all", "sample"), default="all")
    parser.add_argument("--json", type=Path, default=None, help="write the figures there as well")
    arguments = parser.parse_args()
    screening = load(arguments.screening)
    with tempfile.TemporaryDirectory() as temporary:
        fixtures, build_s, build_cpu_s, peak_mib = measure_build(screening, Path(temporary))
        began = time.perf_counter()
        open_set(Path(temporary))
        reopen_s = time.perf_counter() - began
        step = 1 if arguments.reference == "all" else 8
        encode_s, encode_cpu_s, encoded, different = measure_reference(screening, fixtures, step)
    total = int(fixtures.facts["prompt_tokens"])
    reference_s, reference_cpu_s = encode_s * total / encoded, encode_cpu_s * total / encoded
    figures: dict[str, Any] = {
        "screening": screening.name,
        "payloads": len(fixtures.payloads),
        "prompt_tokens": total,
        "build_s": round(build_s, 2),
        "build_cpu_s": round(build_cpu_s, 2),
        "reopen_s": round(reopen_s, 2),
        "peak_mib": round(peak_mib),
        "reference_s": round(reference_s, 2),
        "reference_cpu_s": round(reference_cpu_s, 2),
        "reference_tokens_encoded": encoded,
        "ratio": round(reference_s / build_s, 1),
        "ratio_cpu": round(reference_cpu_s / build_cpu_s, 1),
        "counts_different": different,
        "tokens_compared_at_seams": fixtures.facts["compared_tokens"],
        "encoder": fixtures.facts["encoder"],
    }
    sys.stdout.write(report(figures))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    met = build_s <= TARGET_SECONDS and peak_mib <= TARGET_MIB and reference_s / build_s >= TARGET_RATIO
    return 0 if met and not different else 1


def report(figures: dict[str, Any]) -> str:
    """The table as text."""
    rows = [
        ("bodies / prompt tokens", f"{figures['payloads']} / {figures['prompt_tokens']:,}", ""),
        ("build, verify, write (2 workers)", f"{figures['build_s']} s", f"≤ {TARGET_SECONDS:.0f} s"),
        ("reopen from the cache, every digest checked", f"{figures['reopen_s']} s", ""),
        ("peak memory, workers included", f"{figures['peak_mib']} MiB", f"≤ {TARGET_MIB:.0f} MiB"),
        ("reference: every prompt encoded whole", f"{figures['reference_s']} s", ""),
        ("times faster than the reference", f"{figures['ratio']}", f"≥ {TARGET_RATIO:.0f}"),
        ("CPU seconds: build / reference", f"{figures['build_cpu_s']} / {figures['reference_cpu_s']}", ""),
        ("counts that differ from the reference", f"{figures['counts_different']}", "0"),
        ("tokens compared at seams while building", f"{figures['tokens_compared_at_seams']:,}", ""),
    ]
    lines = [f"{name:<46} {value:>24}   {target}".rstrip() for name, value, target in rows]
    return "\n".join([f"fixtures of {figures['screening']} ({figures['encoder']})", *lines, ""])


if __name__ == "__main__":
    raise SystemExit(main())
