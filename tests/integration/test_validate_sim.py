"""Layers 5, 6 and 8 on simulated replicas: what is clean passes, what is broken is named for what it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from harness import config
from harness.cli.application import app
from harness.model.errors import ConfigError, EngineError, ExitCode
from harness.probes.evidence import load_validation
from harness.probes.results import LayerName, LayerResult
from harness.probes.service_plan import SMALLEST
from harness.probes.service_rows import SCHEMA
from harness.wiring.gating import Gated, pass_gate
from harness.wiring.places import Places
from harness.wiring.validation import Validated, ValidateOptions, validate_named

BASE = (Path(__file__).resolve().parents[2] / "blocks" / "quick.toml").read_text(encoding="utf-8")
CORRUPT = {"cache": '{ kind = "corrupt_transfer" }'}
IGNORES_SALT = {"cache": '{ kind = "ignore_salt" }'}
Serve = Callable[..., Validated]


def declare(folder: Path, name: str, *, replica: str = "", cache: str = "", extra: str = "") -> Path:
    text = BASE.replace('name = "quick"', f'name = "{name}"')
    settings = "\n".join(filter(None, [extra, f"faults = [{replica}]" if replica else ""]))
    for table, lines in (("settings", settings), ("cache_settings", f"faults = [{cache}]" if cache else "")):
        head = f"[engine.options.{table}]\n"
        text = text.replace(head, f"{head}{lines}\n") if lines else text
    path = folder / f"{name}.toml"
    path.write_text(text, encoding="utf-8")
    return path


def validate(declaration: Path, places: Places, *layers: LayerName) -> Validated:
    options = ValidateOptions(composition=SMALLEST, layers=layers or ("service",))
    return validate_named(str(declaration), places, options)[0]


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(results=tmp_path / "results")


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Serve:
    """Layer 5 on a faulty configuration; the same faults are served once for all tests of this file."""
    known: dict[str, Validated] = {}
    folder = tmp_path_factory.mktemp("served")

    def run(**faults: str) -> Validated:
        key = repr(faults)
        if key not in known:
            path = declare(folder, f"served-{len(known)}", **faults)
            known[key] = validate(path, Places(results=folder / "results"))
        return known[key]

    return run


def service(done: Validated) -> LayerResult:
    return done.validation.layers["service"]


def failing(result: LayerResult) -> set[str]:
    return {check.name for check in result.checks if not check.ok}


def test_a_clean_configuration_passes_every_http_layer(tmp_path: Path, places: Places) -> None:
    done = validate(declare(tmp_path, "clean"), places, "service", "protocol")
    assert {name: result.status for name, result in done.validation.layers.items()} == {
        "service": "passed",
        "protocol": "passed",
    }
    assert len(done.validation.layers["protocol"].checks) == 11
    assert load_validation(places.results, done.validation.fingerprint_digest) == done.validation


@pytest.mark.parametrize(
    ("fault", "verdict"),
    [
        (CORRUPT, "transferred state"),
        ({"replica": '{ kind = "wrong_model_answer" }'}, "model"),
        ({"replica": '{ kind = "numeric_drift" }'}, "drift candidate"),
        ({"cache": '{ kind = "evict" }'}, "pool too small"),
        ({"cache": '{ kind = "shortfall", chunks = 0 }'}, "treatment not applied"),
    ],
)
def test_a_fault_is_named_for_what_it_is(serve: Serve, fault: dict[str, str], verdict: str) -> None:
    result = service(serve(**fault))
    assert (result.status, result.verdict) == ("failed", verdict)


def test_the_verdict_on_corrupted_state_gives_both_answers(serve: Serve) -> None:
    summary = service(serve(**CORRUPT)).summary
    assert "same tokens under a fresh salt: cold correct" in summary
    assert "answered" in summary


def test_cold_and_local_answers_stay_right_while_transferred_ones_are_corrupt(serve: Serve) -> None:
    broken = failing(service(serve(**CORRUPT)))
    assert not broken & {"exact values, cold", "exact values, local reuse"}
    assert {"exact values, transferred from A", "exact values, transferred to A"} <= broken


def test_the_requests_behind_the_verdict_are_stored(serve: Serve) -> None:
    done = serve(**CORRUPT)
    assert done.folder is not None
    table = pq.read_table(done.folder / "service-requests.parquet")
    parts = table.column("part").to_pylist()
    assert table.schema.equals(SCHEMA)
    assert {part: parts.count(part) for part in ("canary", "warmup", "plan")} == {"canary": 3, "warmup": 2, "plan": 14}
    assert {row["cause"] for row in table.to_pylist()} == {None, "transferred state"}


def test_a_shared_store_that_ignores_the_salt_is_caught_before_anything_is_measured(serve: Serve) -> None:
    result = service(serve(**IGNORES_SALT))
    assert (result.status, result.verdict, result.facts["requests"]) == ("failed", "salt ignored", 0)
    assert "external tokens" in result.summary


def test_an_engine_that_does_not_start_is_not_validated_and_never_passed(serve: Serve) -> None:
    result = service(serve(extra="max_num_seqs = 0"))
    assert result.status == "not_validated"
    assert result.missing


def test_a_declaration_without_a_sharing_arm_has_nothing_to_validate(places: Places) -> None:
    with pytest.raises(ConfigError, match="nothing to validate"):
        validate_named("aa", places, ValidateOptions())


@pytest.mark.parametrize(
    ("layers", "code"),
    [(["representation"], ExitCode.OK), (["1", "2"], ExitCode.NOT_STARTED), (["ninth"], ExitCode.DECLARATION)],
)
def test_exit_codes_of_layers_without_an_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layers: list[str], code: ExitCode
) -> None:
    monkeypatch.setenv("KVABBA_RESULTS", str(tmp_path))
    arguments = [word for layer in layers for word in ("--layer", layer)]
    ran = CliRunner().invoke(app, ["validate", "quick", "--quiet", *arguments])
    got = ran.exception.exit_code if isinstance(ran.exception, ConfigError) else ran.exit_code
    assert got == code


def test_a_failed_layer_ends_with_exit_code_5(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVABBA_RESULTS", str(tmp_path / "results"))
    leaky = declare(tmp_path, "leaky", **IGNORES_SALT)
    ran = CliRunner().invoke(app, ["validate", str(leaky), "--quiet", "--short", "--layer", "service"])
    assert ran.exit_code == ExitCode.VOID
    assert "failed" in ran.stdout


def test_a_simulated_screening_validates_itself_once(tmp_path: Path) -> None:
    screening = config.load(declare(tmp_path, "newcomer"))
    places = Places(results=tmp_path / "results", fixtures_cache=tmp_path / "cache" / "fixtures")
    events: list[str] = []

    def again() -> Gated:
        return pass_gate(
            screening, screening.order, places, unvalidated=False, on_event=lambda event: events.append(event.phase)
        )

    first, started = again(), len(events)
    second = again()
    assert (first.unvalidated, started > 0, len(events) == started) == (False, True, True)
    assert second.header() == first.header()


def test_a_stored_failure_closes_the_gate_unless_the_user_insists(tmp_path: Path, places: Places) -> None:
    path = declare(tmp_path, "leaky", **IGNORES_SALT)
    validate(path, places)
    screening = config.load(path)
    with pytest.raises(EngineError, match="its validation failed"):
        pass_gate(screening, screening.order, places, unvalidated=False)
    assert pass_gate(screening, screening.order, places, unvalidated=True).unvalidated


def test_a_simulation_of_faults_runs_and_says_that_it_is_unvalidated(tmp_path: Path, places: Places) -> None:
    screening = config.load(declare(tmp_path, "faulty", replica='{ kind = "no_usage" }'))
    gated = pass_gate(screening, screening.order, places, unvalidated=False)
    assert (gated.unvalidated, gated.header()["unvalidated"]) == (True, True)


def test_a_loose_block_of_the_baseline_needs_no_validation(tmp_path: Path, places: Places) -> None:
    screening = config.load(declare(tmp_path, "baseline"))
    assert not pass_gate(screening, ("off",), places, unvalidated=False).decisions
