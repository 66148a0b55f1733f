"""Commands that need no server: help, plan, rules, schema, declarations, errors."""

import json
import subprocess
import sys

import pytest
from cli_runs import ROOT, kvabba
from typer.testing import CliRunner

from harness.cli.application import app
from harness.cli.documents import rules_markdown, schema_markdown
from harness.model.rulebook import RULES

RUN = CliRunner()


@pytest.mark.parametrize("name", ["plan", "run", "block", "audit", "report", "rules"])
def test_every_command_has_help_with_an_example(name):
    done = RUN.invoke(app, [name, "--help"])
    assert done.exit_code == 0
    assert f"kvabba {name}" in done.output


def test_the_plan_of_the_paper_has_the_papers_totals_as_json():
    done = RUN.invoke(app, ["plan", "paper", "--totals", "--json"])
    totals = json.loads(done.output)
    wanted = {
        "measured": 768,
        "warmups": 24,
        "request_pairs": 384,
        "distinct_payloads": 312,
        "fixture_files": 624,
        "exact_checks": 736,
        "forced_checks": 32,
        "answer_in_history": 448,
    }
    assert {name: totals[name] for name in wanted} == wanted


def test_one_block_of_a_plan_is_listed_with_roles_and_expectations():
    done = RUN.invoke(app, ["plan", "paper", "--block", "2"])
    lines = done.output.splitlines()
    assert len(lines) == 1 + 6 + 192
    assert any("cross" in line and "external chunks" in line for line in lines)


def test_a_pipe_that_is_closed_early_is_no_error(tmp_path):
    shell = f"set -o pipefail; {sys.executable} -m harness plan paper | head -2"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 2
    assert tmp_path.is_dir()


def test_a_block_that_does_not_exist_names_those_that_do(tmp_path):
    done = kvabba(tmp_path, "plan", "smoke", "--block", "9")
    assert done.returncode == 2
    assert "1 to 2" in done.stderr


def test_an_unknown_declaration_ends_with_2_and_a_suggestion(tmp_path):
    done = kvabba(tmp_path, "plan", "quik")
    assert done.returncode == 2
    assert "quick" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_that_is_none_ends_with_2(tmp_path):
    done = kvabba(tmp_path, "audit", "nowhere")
    assert done.returncode == 2
    assert "nowhere" in done.stderr


def test_a_folder_without_results_ends_with_1(tmp_path):
    done = kvabba(tmp_path, "audit", tmp_path)
    assert done.returncode == 1
    assert "not a results folder" in done.stderr


def test_one_rule_is_explained():
    done = RUN.invoke(app, ["rules", "leak.local"])
    assert "exit code 4" in done.output
    assert RULES["leak.local"].next_step in done.output


def test_rules_and_schema_are_there_as_json():
    assert len(json.loads(RUN.invoke(app, ["rules", "--json"]).output)) == len(RULES)
    assert "requests" in json.loads(RUN.invoke(app, ["schema", "--json"]).output)["tables"]


def test_declarations_are_listed():
    assert "quick" in RUN.invoke(app, ["declarations"]).output


@pytest.mark.parametrize(("name", "text"), [("schema.md", schema_markdown()), ("rules.md", rules_markdown())])
def test_generated_documents_are_current(name, text):
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == text, "run `make docs`"
