"""Makes `tests/support` importable from every test folder, and offers runs in the fake world that clean up."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))


@pytest.fixture
def make_run(tmp_path):
    """Factory of runs in the fake world (`fake_runs.fake_run`); their locks are released at the end."""
    from fake_runs import fake_run  # noqa: PLC0415 - importable only after the line above has run

    made = []

    def make(faults=None, **values):
        made.append(fake_run(tmp_path, faults, **values))
        return made[-1]

    yield make
    for run in made:
        run.setting.folder.release()
