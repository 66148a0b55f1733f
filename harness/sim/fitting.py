"""Fit the time model to published TTFT medians: `python -m harness.sim fit`.

Only the chain medians are fitted. What they cannot identify (decoding) is declared, with its reason, and sessions
and windows are then predicted. The model is linear in its parameters, so this is a non-negative weighted least
squares on relative errors; weights are raised where the error is large until the largest error stops falling
(Lawson's method), because the target is a bound on every cell and not on their mean.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.sim import prediction
from harness.sim.settings import PRESETS
from harness.sim.timing import TimeParams

SIZES = (8_000, 32_000, 128_000, 256_000)
CHAINS: dict[tuple[str, str], tuple[float, ...]] = {
    ("off", "cold"): (1.157, 5.254, 31.755, 92.108),
    ("on", "cold"): (1.162, 5.265, 31.774, 92.188),
    ("off", "local"): (0.050, 0.181, 0.484, 0.557),
    ("on", "local"): (0.052, 0.184, 0.492, 0.574),
    ("off", "cross"): (1.161, 5.252, 31.715, 92.047),
    ("on", "cross"): (0.095, 0.221, 0.605, 0.790),
}
"""Published TTFT medians in s, by arm and chain step, in order of SIZES."""

SESSIONS: dict[tuple[int, str], tuple[float, float]] = {
    (31_991, "fixed"): (10.706, 10.742),
    (31_993, "alternating"): (16.708, 10.821),
    (128_000, "fixed"): (40.465, 40.605),
    (127_980, "alternating"): (73.220, 40.553),
}
"""Published session wall medians in s (OFF, ON), by initial prompt tokens and placement. Never fitted."""

WINDOWS: dict[tuple[int, str], float] = {
    (4, "fixed"): 0.0,
    (8, "fixed"): 0.0,
    (4, "alternating"): 87.0,
    (8, "alternating"): 78.0,
}
"""Published change of window throughput in percent, by sessions and placement. Never fitted."""

WEIGHT_BYTES = 23_285_140_684
"""Size of the published model's weights: one decode step reads them once."""
DECLARED_BANDWIDTH = 1.61e12
"""B/s, declared: 90 % of the 1.79 TB/s of the smallest card (96 GB) that holds these weights and 1,957,941 tokens
of FP8 KV. Changing it moves the sessions, which is why it is declared and not fitted."""
DECLARED_KV_BYTES = 32_768
"""B/token, declared: 16 attention layers, K and V, 4 heads of 256, one byte each."""

FITTED = (
    "first_token_constant",
    "host_per_prompt_token",
    "connector_per_token",
    "prefill_per_token",
    "prefill_fresh_pair",
    "prefill_cached_pair",
    "transfer_floor",
    "transfer_per_token",
)
REPRODUCED_WITHIN = 0.002
"""Relative difference of parameters from one machine to another. Linear algebra rounds differently on processors of
different vector width, and thousands of reweightings carry that into the fourth digit of what binds the least."""
CLIENT_OVERHEAD_S = 0.02
"""Short cells are weighted by 1 + this / TTFT: the client's own constant cost eats into their tolerance."""


def cells() -> list[tuple[str, str, int, float]]:
    """Every published chain cell: (arm, step, tokens, TTFT in s)."""
    return [(arm, step, n, t) for (arm, step), row in CHAINS.items() for n, t in zip(SIZES, row, strict=True)]


def design() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Predicted TTFT per unit of every fitted parameter (cells by parameters), and the published TTFT.

    The floor binds below 100k tokens and the bandwidth above: `transfer` is linear once that is known.
    """
    zero = dict.fromkeys((f.name for f in fields(TimeParams)), 0.0)
    rows, times = [], []
    for arm, step, n, seconds in cells():
        row = []
        for name in FITTED:
            unit = prediction.chain_ttft(TimeParams(**{**zero, name: 1.0}), n, step, on=arm == "on")
            inactive = (name == "transfer_floor" and n > 100_000) or (name == "transfer_per_token" and n <= 100_000)
            row.append(0.0 if inactive else unit)
        rows.append(row)
        times.append(seconds)
    return np.array(rows), np.array(times)


def nonnegative_least_squares(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Argmin |ax − b| over x ≥ 0, by dropping the most negative coefficient until none is left."""
    active = list(range(a.shape[1]))
    while active:
        x, *_ = np.linalg.lstsq(a[:, active], b, rcond=None)
        worst = int(np.argmin(x))
        if x[worst] >= 0:
            full = np.zeros(a.shape[1])
            full[active] = x
            return full
        del active[worst]
    return np.zeros(a.shape[1])


def fit(iterations: int = 4000) -> TimeParams:
    """The fitted eight parameters and the two declared ones."""
    a, t = design()
    relative = a / t[:, None]
    unit = np.abs(relative).max(axis=0)
    scaled, importance = relative / unit, 1.0 + CLIENT_OVERHEAD_S / t
    weight = np.full(len(t), 1.0 / len(t))
    best, best_error = np.zeros(a.shape[1]), np.inf
    for _ in range(iterations):
        root = np.sqrt(weight) * importance
        x = nonnegative_least_squares(scaled * root[:, None], root)
        error = np.abs(scaled @ x - 1.0) * importance
        if error.max() < best_error:
            best, best_error = x, float(error.max())
        weight = weight * (error / error.max() + 0.02)
        weight /= weight.sum()
    values = {name: float(f"{v:.5g}") for name, v in zip(FITTED, best / unit, strict=True)}
    return TimeParams(
        **values,
        decode_step=float(f"{WEIGHT_BYTES / DECLARED_BANDWIDTH:.5g}"),
        decode_per_context_token=float(f"{DECLARED_KV_BYTES / DECLARED_BANDWIDTH:.5g}"),
    )


def preset() -> dict[str, Any]:
    """The fit as the content of `presets/paper.json`."""
    return {
        "description": "fitted on the published TTFT medians of the chains alone; sessions and windows are predicted",
        "block_size": prediction.Geometry().block,
        "chunk_size": prediction.Geometry().chunk,
        "fitted": list(FITTED),
        "declared": {
            "decode_step": f"{WEIGHT_BYTES} weight bytes / {DECLARED_BANDWIDTH:g} B/s",
            "decode_per_context_token": f"{DECLARED_KV_BYTES} KV bytes / {DECLARED_BANDWIDTH:g} B/s",
        },
        "time": asdict(fit()),
    }


def reproduces(fitted: dict[str, Any], embedded: dict[str, Any]) -> bool:
    """Whether two presets are the same but for what rounding does to their parameters."""
    here, there = fitted["time"], embedded["time"]
    return (
        {**fitted, "time": None} == {**embedded, "time": None}
        and here.keys() == there.keys()
        and all(math.isclose(here[name], there[name], rel_tol=REPRODUCED_WITHIN) for name in here)
    )


def comparison(p: TimeParams) -> list[dict[str, Any]]:
    """Published against modelled, every cell: chains and sessions in s, windows in percent."""
    rows: list[dict[str, Any]] = []
    for arm, step, n, seconds in cells():
        model = prediction.chain_ttft(p, n, step, on=arm == "on")
        rows.append({"what": "ttft", "cell": f"{n} {arm} {step}", "published": seconds, "model": model})
    for (n, placement), pair in SESSIONS.items():
        for on, seconds in zip((False, True), pair, strict=True):
            model = prediction.session_wall(p, n, alternating=placement == "alternating", on=on)
            rows.append(
                {
                    "what": "session",
                    "cell": f"{n} {'on' if on else 'off'} {placement}",
                    "published": seconds,
                    "model": model,
                }
            )
    for (count, placement), gain in WINDOWS.items():
        model = prediction.window_gain(p, count, alternating=placement == "alternating")
        rows.append({"what": "window", "cell": f"{count} {placement}", "published": gain, "model": model})
    return rows


def main(*, write: bool) -> int:
    """Print the preset and the errors of every cell; 1 where the embedded preset is not what the fit gives."""
    fitted, path = preset(), PRESETS / "paper.json"
    if write:
        path.write_text(json.dumps(fitted, indent=2) + "\n", encoding="utf-8")
    lines = [
        json.dumps(fitted, indent=2),
        "what     cell                     published     model  difference (%, points)",
    ]
    for row in comparison(TimeParams(**fitted["time"])):
        published, model = row["published"], row["model"]
        off = model - published if row["what"] == "window" else 100 * (model / published - 1)
        lines.append(f"{row['what']:8} {row['cell']:24} {published:9.3f} {model:9.3f} {off:+11.2f}")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0 if reproduces(fitted, json.loads(path.read_text(encoding="utf-8"))) else 1
