"""`python -m harness.sim`: see `harness.sim.cli`."""

from harness.sim.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
