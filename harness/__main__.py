"""`python -m harness`: the same as the `kvabba` command."""

from harness.cli import main

if __name__ == "__main__":
    main()
