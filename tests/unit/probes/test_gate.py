import pytest

from harness.model.errors import EngineError, ExitCode
from harness.probes import gate
from harness.probes.evidence import Validation
from harness.probes.results import Check, LayerResult, from_checks, not_validated

DIGEST = "ab" * 32


def layer(name, failures: int = 0) -> LayerResult:
    return from_checks(name, [Check(name="x", trials=2, failures=failures)], facts={})


def validation(*results: LayerResult, digest: str = DIGEST) -> Validation:
    return Validation(
        fingerprint_digest=digest,
        screening="s",
        arm="on",
        identity={},
        layers={result.layer: result for result in results},
        at_utc={result.layer: "2026-11-30T00:00:00Z" for result in results},
        processes={"A": "1", "B": "2"},
    )


HTTP = (layer("service"), layer("protocol"))


def decide(known, *, unvalidated=False):
    return gate.decide(known, DIGEST, unvalidated=unvalidated)


def test_passed_http_layers_open_the_gate() -> None:
    decision = decide(validation(*HTTP))
    assert (decision.allowed, decision.unvalidated) == (True, False)


def test_layers_that_could_not_run_are_named_beside_an_open_gate() -> None:
    decision = decide(validation(*HTTP, not_validated("copy_ordering", "no CUDA device")))
    assert decision.allowed
    assert "copy_ordering" in decision.not_validated


@pytest.mark.parametrize(
    ("known", "standing"),
    [
        (None, "missing"),
        (validation(*HTTP, digest="cd" * 32), "other fingerprint"),
        (validation(layer("service", failures=1), layer("protocol")), "failed"),
        (validation(*HTTP, layer("provenance", failures=1)), "failed"),
        (validation(layer("service")), "incomplete"),
        (validation(), "incomplete"),
        (validation(layer("protocol"), not_validated("service", "no engine")), "incomplete"),
    ],
)
def test_everything_else_closes_it_unless_the_user_insists(known, standing) -> None:
    refused, insisted = decide(known), decide(known, unvalidated=True)
    assert (refused.allowed, refused.standing) == (False, standing)
    assert (insisted.allowed, insisted.unvalidated) == (True, True)


def test_a_protocol_that_could_only_be_checked_in_part_does_not_close_it() -> None:
    partly = not_validated("protocol", "partly: tool calls")
    assert decide(validation(layer("service"), partly)).allowed


def test_insisting_on_a_validated_set_up_does_not_make_it_unvalidated() -> None:
    assert not decide(validation(*HTTP), unvalidated=True).unvalidated


def test_a_closed_gate_ends_with_exit_code_3_and_the_command_to_run() -> None:
    with pytest.raises(EngineError, match="no validation of this set-up") as refused:
        gate.require(decide(None), screening="paper", arm="on")
    assert (refused.value.exit_code, "kvabba validate paper" in str(refused.value.hint)) == (ExitCode.NOT_STARTED, True)


def test_processes_that_changed_since_the_validation_are_named() -> None:
    running = {"A": {"fingerprint_digest": "1"}, "B": {"fingerprint_digest": "other"}}
    assert gate.changed_processes(validation(*HTTP), running) == ("B",)
