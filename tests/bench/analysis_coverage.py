"""`python tests/bench/analysis_coverage.py [seeds]`: does the 95 % interval cover, and does `power` predict detection?

Reference: 93 to 97 % coverage with 6, 8 and 12 block pairs, drift switched on, for no effect and +5 %; detection
within 5 points of the prediction. Three studies: `power` knows the noise; it knows an A/A run of 24 pairs; drift
twice the noise.
"""

from __future__ import annotations

import sys

from harness.analysis.coverage import as_table, coverage_study


def main() -> None:
    """Print the three tables."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    for title, settings in (
        ("noise known", {}),
        ("noise from an A/A run of 24 pairs", {"predict_from": 24}),
        ("drift of twice the noise per block", {"drift_pct": 8.0}),
    ):
        print(f"{title}:\n{as_table(coverage_study(seeds=seeds, **settings))}\n")  # noqa: T201 - a benchmark prints


if __name__ == "__main__":
    main()
