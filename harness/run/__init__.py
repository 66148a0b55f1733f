"""Walks a schedule: one block, a whole screening, its resumption. Knows the world only through `harness.run.ports`."""

from harness.run.block import BlockResult, run_block
from harness.run.screening import run_screening

__all__ = ["BlockResult", "run_block", "run_screening"]
