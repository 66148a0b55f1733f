"""Exceptions and exit codes.

A failed request is an `Observation`, a void experiment is a `Verdict`: neither is an exception. What remains are
conditions under which the harness itself cannot go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum


class ExitCode(IntEnum):
    """Process exit codes of `kvabba`; the table stands in `docs/method.md`."""

    OK = 0
    FINDINGS = 1
    DECLARATION = 2
    NOT_STARTED = 3
    LEAK = 4
    VOID = 5
    INTERRUPTED = 6
    LOCKED = 7
    DEADLINE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """One thing wrong in a declaration: where (`workloads.chains.sizes[1].tokens`), what, and what is allowed."""

    path: str
    message: str
    allowed: str | None = None

    def __str__(self) -> str:
        tail = f" (allowed: {self.allowed})" if self.allowed else ""
        return f"{self.path}: {self.message}{tail}" if self.path else f"{self.message}{tail}"


class HarnessError(Exception):
    """Base of everything the harness raises on purpose; carries the exit code and, where known, the next step."""

    exit_code: ExitCode = ExitCode.NOT_STARTED

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class ConfigError(HarnessError):
    """A declaration is wrong; carries every issue at once."""

    exit_code = ExitCode.DECLARATION

    def __init__(self, source: str, issues: Sequence[Issue]) -> None:
        lines = "\n".join(f"  {issue}" for issue in issues)
        super().__init__(f"{source}: {len(issues)} problem{'' if len(issues) == 1 else 's'}\n{lines}")
        self.source = source
        self.issues = tuple(issues)


class FixtureError(HarnessError):
    """Fixtures cannot be built as declared (count out of bounds, shared prefix between namespaces, …)."""

    exit_code = ExitCode.DECLARATION


class EngineError(HarnessError):
    """An engine or service did not start, answered wrongly, or a part of it is missing."""

    exit_code = ExitCode.NOT_STARTED

    def __init__(
        self,
        message: str,
        *,
        phase: str,
        process_exit: int | None = None,
        log_tail: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.phase = phase
        self.process_exit = process_exit
        self.log_tail = log_tail


class SchemaError(HarnessError):
    """A stored file does not have the columns, types or digest it must have."""

    exit_code = ExitCode.FINDINGS


class StoreError(HarnessError):
    """A results folder cannot be written (disk full, permission); what was committed before stays whole."""

    exit_code = ExitCode.INTERRUPTED


class InterruptedRun(HarnessError):
    """Ctrl-C or SIGTERM ended the run after an orderly teardown; the screening can be resumed."""

    exit_code = ExitCode.INTERRUPTED


class LockedError(HarnessError):
    """Another run holds the results folder."""

    exit_code = ExitCode.LOCKED


class DeadlineError(HarnessError):
    """The declared deadline of the run was reached; the screening can be resumed."""

    exit_code = ExitCode.DEADLINE


class VoidBlock(HarnessError):
    """A rule voided the block: the run stops, the block is archived under `excluded/`."""

    exit_code = ExitCode.VOID

    def __init__(self, message: str, *, rule: str, key: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.rule = rule
        self.key = key


class LeakError(VoidBlock):
    """A request hit tokens that it must not have found in any cache."""

    exit_code = ExitCode.LEAK
