from harness.probes import gpu
from harness.probes.allocator import deployed_branch
from harness.probes.copy_ordering import Trial, summarise
from harness.probes.full_pool import rounded
from harness.probes.results import Check, from_checks, not_validated, result_from_json


def rows(mechanism: str, delay: int, wrong: int) -> list[Trial]:
    return [
        Trial(mechanism=mechanism, nbytes=4, direction="d2h", delay_cycles=delay, trial=i, wrong_bytes=wrong)
        for i in range(3)
    ]


def test_a_raw_copy_that_fails_under_delay_is_what_the_probe_must_see() -> None:
    checks = summarise(rows("raw", 0, 0) + rows("raw", 10**8, 4) + rows("tensor copy", 10**8, 0), "GPU 0")
    assert from_checks("copy_ordering", [c for c in checks if c.trials], facts={}).status == "passed"


def test_a_raw_copy_that_passes_under_delay_makes_the_probe_insensitive() -> None:
    checks = [c for c in summarise(rows("raw", 10**8, 0), "GPU 0") if c.trials]
    result = from_checks("copy_ordering", checks, facts={})
    assert (result.status, result.verdict) == ("failed", "insensitive probe")


def test_an_ordered_copy_with_wrong_bytes_fails_the_layer() -> None:
    checks = [c for c in summarise(rows("async on stream", 10**8, 2), "GPU 0") if c.trials]
    assert from_checks("copy_ordering", checks, facts={}).status == "failed"
    assert checks[0].detail == "6 mismatching bytes of 12"


def test_no_check_at_all_is_not_validated() -> None:
    assert from_checks("service", [], facts={}).status == "not_validated"


def test_a_check_without_trials_is_not_ok() -> None:
    assert not Check(name="nothing ran", trials=0, failures=0).ok


def test_results_survive_their_json() -> None:
    result = from_checks("protocol", [Check(name="a", trials=2, failures=1, detail="x")], facts={"k": 1})
    assert result_from_json(result.to_json()) == result


def test_leaving_the_lazy_flag_out_selects_the_lazy_allocator() -> None:
    assert deployed_branch(["--l1-size-gb", "60"]) == "lazy"
    assert deployed_branch(["--no-l1-use-lazy"]) == "mixed"


def test_the_papers_pool_rounds_to_512_gib_without_the_threshold() -> None:
    assert rounded(274_877_911_040, threshold=False) == 512 << 30
    assert rounded(274_877_911_040, threshold=True) == 274_877_911_040


def test_without_a_gpu_the_layers_say_what_is_missing() -> None:
    result, trials = gpu.copy_ordering("python3", 0)
    assert result == not_validated("copy_ordering", "no CUDA device")
    assert trials == []


def test_a_child_that_dies_is_missing_and_never_a_pass() -> None:
    found = gpu.call("python3", "no_such_layer", {})
    assert "ended with code" in found["missing"]
