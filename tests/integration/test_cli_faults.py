"""Faults of the real simulator through the command line: each stops where it must, with its exit code and reason."""

import re
import signal

import pytest
from cli_runs import declaration, fault, header, kvabba, only_run, reason, start, wait_for

from harness.store import RunFolder

pytestmark = pytest.mark.slow
EVERY = ("chains", "sessions", "generation", "concurrency")
COLD_BLOCK_1, CROSS_BLOCK_2 = "chains/1k/0/cold", "chains/1k/0/cross"


def nth_request(block, seq):
    """Selects one request of one block by the id that the harness sends with it (warm-ups come first: 2 of them)."""
    return f'{{ request_id = "-{block:02d}-{seq:05d}" }}'


@pytest.mark.parametrize(
    ("block", "seq", "where", "rule"),
    [(1, 2, "local", "leak.local"), (2, 2, "local", "leak.local"), (2, 5, "external", "leak.external")],
)
def test_a_leak_ends_with_4_and_names_request_tokens_and_cause(tmp_path, block, seq, where, rule):
    tokens = 256 if where == "external" else 32
    leak = fault("leak_block", tokens=tokens, where=f'"{where}"', when=nth_request(block, seq))
    path = declaration(tmp_path, "leaky", more=leak)
    done = kvabba(tmp_path, "run", path)
    assert done.returncode == 4, done.stderr
    run = only_run(tmp_path, "leaky")
    assert reason(run)["rule"] == rule
    assert reason(run)["block"] == block
    assert re.search(rf"hit [\d,]+ {where} tokens on [AB]", done.stderr)
    assert "Traceback" not in done.stderr
    assert header(run)["status"] == "void"


@pytest.mark.parametrize("seq", [8, 12, 13])
def test_a_chunk_too_much_in_a_later_turn_is_a_leak_and_no_stored_answer(tmp_path, seq):
    leak = fault("leak_block", tokens=256, where='"external"', when=nth_request(2, seq))
    done = kvabba(tmp_path, "run", declaration(tmp_path, "leaky", keep=EVERY, more=leak))
    assert done.returncode == 4, done.stderr
    assert reason(only_run(tmp_path, "leaky"))["rule"] == "leak.external"


def test_a_leak_is_followed_by_a_new_screening_that_names_it(tmp_path):
    path = declaration(tmp_path, "leaky", more=fault("leak_block", tokens=32, when=nth_request(1, 2)))
    assert kvabba(tmp_path, "run", path).returncode == 4
    first = only_run(tmp_path, "leaky")
    assert kvabba(tmp_path, "run", path, "--resume", first.name).returncode == 2
    done = kvabba(tmp_path, "run", path, "--follows", first.name)
    assert done.returncode == 4
    second = next(p for p in (tmp_path / "leaky").glob("2*") if p != first)
    assert header(second)["predecessor"]["run"] == first.name
    assert header(second)["predecessor"]["excluded"][0]["rule"] == "leak.local"


def test_cor_2_a_shortfall_in_on_ends_with_5(tmp_path):
    path = declaration(tmp_path, "short", more=fault("shortfall", chunks=1, when=nth_request(2, 5)))
    done = kvabba(tmp_path, "run", path)
    assert done.returncode == 5, done.stderr
    assert reason(only_run(tmp_path, "short"))["rule"] == "treatment.external_short"


def test_cor_2_a_shortfall_inside_a_window_ends_with_5(tmp_path):
    short = fault("shortfall", chunks=1, when=nth_request(2, 13))
    # Slow answers: the first turn's chunks must be written before the second turn asks for them, else none is missed.
    slow = {"decode_step = 0.001": "decode_step = 0.005"}
    path = declaration(tmp_path, "short", keep=EVERY, more=short, **slow)
    done = kvabba(tmp_path, "run", path)
    assert done.returncode == 5, done.stderr
    assert reason(only_run(tmp_path, "short"))["rule"] == "treatment.external_short"


def test_iso_1_a_shared_store_that_ignores_the_salt_is_refused_before_measuring(tmp_path):
    path = declaration(tmp_path, "unsalted", more=fault("ignore_salt", where='"shared"'))
    done = kvabba(tmp_path, "run", path)
    assert done.returncode == 5, done.stderr
    assert reason(only_run(tmp_path, "unsalted"))["rule"] == "isolation.salt_ignored"
    assert "block 2/2 on · measure" not in done.stderr


def test_met_2_an_on_arm_without_its_series_does_not_start(tmp_path):
    path = declaration(tmp_path, "blind", more=fault("empty_metrics", mode='"missing_external"'))
    done = kvabba(tmp_path, "run", path)
    assert done.returncode == 3, done.stderr
    assert "external_prefix_cache" in done.stderr


def test_an_engine_that_does_not_start_ends_with_3_and_says_which(tmp_path):
    slow = fault("slow_start", delay_s=60.0)
    path = declaration(tmp_path, "broken", more=slow, **{"start_timeout_s = 60.0": "start_timeout_s = 1.0"})
    done = kvabba(tmp_path, "run", path)
    assert done.returncode == 3, done.stderr
    assert "A" in done.stderr
    assert header(only_run(tmp_path, "broken"))["status"] == "not_started"


def test_a_wrong_declaration_ends_with_2_and_every_problem(tmp_path):
    path = declaration(tmp_path, "wrong", **{"seed = 20260915": 'seed = "x"\nnonsense = 1'})
    done = kvabba(tmp_path, "run", path)
    assert done.returncode == 2
    assert "seed" in done.stderr
    assert "nonsense" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_stops_everything_with_6_and_can_be_resumed(tmp_path, number):
    path = declaration(tmp_path, "cut")
    process = start(tmp_path, "run", path)
    wait_for(process, "block 2/2 on · measure")
    process.send_signal(number)
    said = process.stderr.read()
    assert process.wait(30) == 6, said
    process.stderr.close()
    run = only_run(tmp_path, "cut")
    assert header(run)["status"] == "interrupted"
    done = kvabba(tmp_path, "run", path, "--resume", run.name)
    assert done.returncode in (0, 1), done.stderr
    assert sorted(p.name for p in (run / "superseded").iterdir()) == ["01-off-1", "02-on-1"]
    assert sorted(p.name for p in (run / "blocks").iterdir()) == ["01-off", "02-on"]


def test_a_folder_that_another_run_holds_ends_with_7(tmp_path):
    path = declaration(tmp_path, "held")
    with RunFolder.create(tmp_path, "held", "r", header={}, declaration=b"{}"):
        done = kvabba(tmp_path, "run", path)
    assert done.returncode == 7, done.stderr
    assert "another run holds" in done.stderr
