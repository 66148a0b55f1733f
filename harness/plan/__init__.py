"""From a declaration to every request of every block; pure and seeded."""

from harness.plan.listing import (
    describe,
    request_rows,
    requests_json,
    requests_text,
    totals_json,
    totals_rows,
    totals_text,
)
from harness.plan.namespaces import namespace, salt_of
from harness.plan.order import is_aa, order_problem, pseudo_treatment, slots
from harness.plan.scheduling import pair_requests, schedule
from harness.plan.totals import Totals, totals

__all__ = [
    "Totals",
    "describe",
    "is_aa",
    "namespace",
    "order_problem",
    "pair_requests",
    "pseudo_treatment",
    "request_rows",
    "requests_json",
    "requests_text",
    "salt_of",
    "schedule",
    "slots",
    "totals",
    "totals_json",
    "totals_rows",
    "totals_text",
]
