from types import SimpleNamespace

from harness.report.validated import validations

ROWS = [
    {"number": 2, "layer": "copy_ordering", "status": "not validated", "summary": "not validated: no CUDA device",
     "missing": "no CUDA device", "at_utc": None},
    {"number": 5, "layer": "service", "status": "passed", "summary": "25 requests", "missing": None, "at_utc": "now"},
]  # fmt: skip


def run(validation):
    return SimpleNamespace(header={"validation": validation})


def arm(**decision):
    return {"arms": {"on": {"decision": decision, "fingerprint_digest": "ab" * 32, "rows": ROWS}}}


def test_a_missing_part_is_shown_instead_of_a_summary():
    (found,) = validations(run(arm(unvalidated=False, reason="passed: service")))
    assert [(line.layer, line.words) for line in found.layers] == [
        ("copy ordering", "no CUDA device"),
        ("service", "25 requests"),
    ]


def test_the_sentence_says_how_the_arm_started():
    validated, insisted = (
        validations(run(arm(unvalidated=flag, reason="because")))[0].sentence for flag in (False, True)
    )
    assert validated == "Arm on was validated before the start: because."
    assert insisted == "Arm on was started unvalidated: because."


def test_runs_without_a_record_have_no_section():
    assert validations(run(None)) == ()
    assert validations(run({"unvalidated": False, "arms": {}})) == ()
