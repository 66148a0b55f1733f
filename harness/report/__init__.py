"""Stored files → page, terminal summary, exports, comparison. A function of a results folder alone; reads no clock.

`write_report(run, verdict, effects, path)` writes the self-contained page, `terminal_summary(run, verdict, effects)`
prints the short form, `export_llmd` / `write_requests_csv` / `write_observations_csv` are for other tools, and
`compare(Side, Side)` sets two screenings side by side. `verdict` is `harness.analysis.audit(run)`, `effects` is
`harness.analysis.analyse(run, verdict)`.
"""

from harness.report.compare import Comparison, DifferentScreenings, Side, compare, comparison_json, print_comparison
from harness.report.flat import write_observations_csv, write_requests_csv
from harness.report.llmd import export_llmd
from harness.report.page import render, write_report
from harness.report.terminal import terminal_summary

__all__ = [
    "Comparison",
    "DifferentScreenings",
    "Side",
    "compare",
    "comparison_json",
    "export_llmd",
    "print_comparison",
    "render",
    "terminal_summary",
    "write_observations_csv",
    "write_report",
    "write_requests_csv",
]
