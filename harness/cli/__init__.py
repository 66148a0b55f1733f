"""The `kvabba` command: one small module a subcommand. Parses, prints, maps what happened to an exit code."""

from __future__ import annotations

import sys

from harness.cli.application import app
from harness.cli.output import show_error
from harness.model.errors import ExitCode, HarnessError

__all__ = ["main"]


def main() -> None:
    """Run the command line; exits with a code of `ExitCode`, without a traceback for what is expected to go wrong."""
    try:
        app()
    except HarnessError as error:
        show_error(error)
        sys.exit(int(error.exit_code))
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(int(ExitCode.INTERRUPTED))
    except BrokenPipeError:
        sys.stderr.close()  # the reader of a pipe, such as `head`, has seen enough
        sys.exit(int(ExitCode.OK))
