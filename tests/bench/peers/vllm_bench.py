"""Runs vLLM's serving benchmark by its module, since the `vllm` command wants a whole engine.

Run by the interpreter of vLLM's environment, with the benchmark's own command line.
"""

from __future__ import annotations

import argparse

from vllm.benchmarks.serve import add_cli_args, main  # type: ignore[import-not-found,unused-ignore]

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    add_cli_args(parser)
    main(parser.parse_args())
