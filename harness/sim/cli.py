"""Command line of the simulator: a cache service, a replica, an emitter for client benchmarks, and the fit."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable
from pathlib import Path

from harness.sim import fitting, processes
from harness.sim.fault_kinds import FAULTS
from harness.sim.settings import CacheSettings, ReplicaSettings, SettingsError, load

EXAMPLES = """\
examples:
  python -m harness.sim cache --port 8180 --settings '{"chunk_size": 256}'
  python -m harness.sim replica --port 8101 --model sim --tokenizer fixtures/tokenizers/sim \\
      --settings '{"block_size": 32, "time": "paper", "time_scale": 0.05}' --cache http://127.0.0.1:8180
  python -m harness.sim emitter --port 8300 --stamps stamps.jsonl
  python -m harness.sim fit
  python -m harness.sim faults

exit codes: 0 stopped by a signal, 1 engine died, 2 wrong settings or arguments, 3 could not start
"""


def parser() -> argparse.ArgumentParser:
    """All subcommands."""
    raw = argparse.RawDescriptionHelpFormatter
    top = argparse.ArgumentParser("python -m harness.sim", description=__doc__, epilog=EXAMPLES, formatter_class=raw)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def server(name: str, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.add_argument("--host", default="127.0.0.1", help="address to bind (default %(default)s)")
        sub.add_argument("--port", type=int, required=True, help="port to bind; 0 picks a free one and prints it")
        return sub

    cache = server("cache", "the shared cache service")
    replica = server("replica", "a simulated replica")
    for sub in (cache, replica):
        sub.add_argument("--settings", default="{}", metavar="FILE|JSON", help="settings file, or JSON inline")
    replica.add_argument("--model", required=True, help="model name it serves")
    replica.add_argument("--tokenizer", type=Path, required=True, metavar="DIR", help="directory with tokenizer.json")
    replica.add_argument(
        "--token-memo", type=Path, metavar="DIR", help="folder of token ids that replicas share; may outlive them"
    )
    tier = replica.add_mutually_exclusive_group()
    tier.add_argument("--cache", metavar="URL", help="cache service: switches the connector on")
    tier.add_argument(
        "--native-offload-tokens", type=int, default=0, metavar="N", help="tokens of an offload tier of its own"
    )
    replica.add_argument(
        "--no-realtime",
        dest="realtime",
        action="store_false",
        help="do not ask for real-time scheduling",
    )
    replica.add_argument(
        "--keep-awake",
        action="store_true",
        help="ask for idle cores that poll instead of halting; harmful where a host gives its guests a CPU quota",
    )
    replica.add_argument("--stamps", type=Path, metavar="FILE", help="write when each event was sent, as JSON lines")
    emitter = server("emitter", "pre-rendered streams at exact times, for client benchmarks")
    emitter.add_argument("--stamps", type=Path, metavar="FILE", help="write when each event was sent, as JSON lines")
    fit = commands.add_parser("fit", help="fit the time model to the published chain medians; prints preset and errors")
    fit.add_argument("--write", action="store_true", help="rewrite presets/paper.json")
    commands.add_parser("faults", help="list every fault with its parameters")
    return top


def main(argv: list[str] | None = None) -> int:
    """Run a subcommand; the exit code."""
    arguments = parser().parse_args(argv)
    logging.basicConfig(format="sim: %(message)s")
    try:
        code: int = COMMANDS[arguments.command](arguments)
    except SettingsError as error:
        return _complain(arguments, error.problems, 2)
    except processes.StartError as error:
        return _complain(arguments, [str(error)], 3)
    return code


def _complain(arguments: argparse.Namespace, problems: list[str], code: int) -> int:
    for problem in problems:
        sys.stderr.write(f"sim {arguments.command}: {problem}\n")
    return code


def _faults(_: argparse.Namespace) -> int:
    processes.say(fault_table())
    return 0


def fault_table() -> str:
    """Every fault with its parameters, as text."""
    lines = []
    for name, kind in FAULTS.items():
        lines.append(f"{name}  ({'/'.join(kind.sides)}; counts: {kind.scope})\n    {kind.summary}")
        for parameter, rule in kind.parameters.items():
            allowed = f"; allowed: {', '.join(rule.allowed)}" if rule.allowed else ""
            lines.append(f"    {parameter} = {rule.default!r}{' ' + rule.unit if rule.unit else ''}{allowed}")
    return "\n".join(lines)


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "cache": lambda a: processes.run_cache(a, load(CacheSettings, a.settings)),
    "replica": lambda a: processes.run_replica(a, load(ReplicaSettings, a.settings)),
    "emitter": processes.run_emitter,
    "fit": lambda a: fitting.main(write=a.write),
    "faults": _faults,
}
