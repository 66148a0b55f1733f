"""The guide names everything that can be set."""

from pathlib import Path

import pytest

from harness.sim.cli import fault_table, parser
from harness.sim.fault_kinds import FAULTS
from harness.sim.settings import CacheSettings, ReplicaSettings
from harness.sim.timing import TimeParams

GUIDE = (Path(__file__).parents[3] / "docs" / "simulator.md").read_text()


@pytest.mark.parametrize(
    "name", [*FAULTS, *ReplicaSettings.model_fields, *CacheSettings.model_fields, *TimeParams.__dataclass_fields__]
)
def test_it_is_documented(name):
    assert f"`{name}`" in GUIDE


@pytest.mark.parametrize("kind", FAULTS)
def test_every_parameter_of_a_fault_is_documented_beside_it(kind):
    row = next(line for line in GUIDE.splitlines() if line.startswith(f"| `{kind}`"))
    assert all(f"`{name}` = " in row for name in FAULTS[kind].parameters)


def test_the_command_line_lists_every_fault():
    assert all(name in fault_table() for name in FAULTS)


@pytest.mark.parametrize("command", ["cache", "replica", "emitter", "fit"])
def test_every_command_explains_itself(command, capsys):
    with pytest.raises(SystemExit) as caught:
        parser().parse_args([command, "--help"])
    assert caught.value.code == 0
    assert command in capsys.readouterr().out


def test_help_shows_examples():
    assert "examples:" in parser().format_help()
