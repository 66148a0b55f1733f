"""Expectations, invariants, answer verdicts and their cost: pure; the runner applies them at once, the audit again."""
