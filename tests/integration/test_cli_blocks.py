"""Blocks one at a time: loose pairs, open screenings, the wrong arm."""

import json

import pytest
from cli_runs import declaration, header, kvabba, only_run

pytestmark = pytest.mark.slow


def folder_of(done):
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_two_loose_blocks_are_audited_as_a_pair(tmp_path):
    path = declaration(tmp_path, "single")
    off = folder_of(kvabba(tmp_path, "block", "off", path))
    on = folder_of(kvabba(tmp_path, "block", "on", path))
    assert "/loose/" in off
    done = kvabba(tmp_path, "audit", off, on, "--json")
    verdict = json.loads(done.stdout)
    assert verdict["status"] in ("valid", "incomplete"), verdict["findings"]
    assert verdict["rows"] == 10
    again = kvabba(tmp_path, "audit", off, off)
    assert again.returncode == 2
    assert "both are arm off" in again.stderr


def test_an_open_screening_takes_its_blocks_in_order_and_refuses_the_wrong_arm(tmp_path):
    path = declaration(tmp_path, "stepwise")
    wrong = kvabba(tmp_path, "block", "on", path, "--new")
    assert wrong.returncode == 2
    folder_of(kvabba(tmp_path, "block", "off", path, "--new"))
    run = only_run(tmp_path, "stepwise")
    assert header(run)["status"] == "open"
    wrong = kvabba(tmp_path, "block", "off", path)
    assert wrong.returncode == 2
    assert "the next block" in wrong.stderr
    assert "arm on" in wrong.stderr
    folder_of(kvabba(tmp_path, "block", "on", path))
    assert header(run)["status"] == "complete"
    assert kvabba(tmp_path, "audit", run).returncode in (0, 1)


def test_an_unknown_arm_is_named_with_those_that_exist(tmp_path):
    done = kvabba(tmp_path, "block", "sideways", "smoke")
    assert done.returncode == 2
    assert "off, on" in done.stderr
