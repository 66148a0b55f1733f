"""Public cases MET-1 to MET-3, by id: what parsing has to do with them."""

import pytest

from harness.model.counting import Counter, Increase, Missing, Snapshot
from harness.wire.deltas import difference
from harness.wire.exposition import ExpositionError, missing, parse, read_snapshot, resolve

MODEL = 'org/m, {v} "x" 1'
LABEL = 'org/m, {v} \\"x\\" 1'

MET_1 = f"""\
# HELP vllm:prefix_cache_hits_total Hits.
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{{engine="0",model_name="{LABEL}"}} 5.12e+02
vllm:prefix_cache_hits_total{{engine="1",model_name="{LABEL}",}} 3.0
vllm:prefix_cache_hits_total{{engine="0",model_name="other"}} 1000.0
# TYPE vllm:prefix_cache_hits_created gauge
vllm:prefix_cache_hits_created{{engine="0",model_name="{LABEL}"}} 1.7e+09
vllm:prefix_cache_hits_total_per_second{{engine="0",model_name="{LABEL}"}} 77.0
"""


def test_met_1_every_engine_of_the_wanted_model_and_nothing_else_is_summed() -> None:
    assert parse(MET_1, "vllm", model=MODEL).samples[Counter.LOCAL_HITS] == 515.0


def test_met_1_a_model_without_series_is_missing_and_not_zero() -> None:
    assert Counter.LOCAL_HITS not in parse(MET_1, "vllm", model="third").samples


QUERIES = 'vllm:prefix_cache_queries_total{engine="0",model_name="m"} 10\n'
OLD = 'vllm:gpu_prefix_cache_queries_total{engine="0",model_name="m"} 10\n'
BARE_NAME = "vllm:prefix_cache_queries"
BARE = BARE_NAME + '{engine="0",model_name="m"} 10\n'


def test_met_2_a_needed_series_that_is_not_exposed_is_named() -> None:
    words = missing(resolve(QUERIES, "vllm", model="m"), "vllm", [Counter.LOCAL_QUERIES, Counter.EXTERNAL_HITS])
    assert len(words) == 1
    assert "vllm:external_prefix_cache_hits_total" in words[0]


def test_met_2_an_unneeded_series_that_is_not_exposed_is_null() -> None:
    snapshot = read_snapshot(QUERIES, "vllm", target="A", at_ns=1, model="m")
    assert Counter.EXTERNAL_HITS not in snapshot.samples


@pytest.mark.parametrize(("text", "name"), [(OLD, "vllm:gpu_prefix_cache_queries_total"), (BARE, BARE_NAME)])
def test_met_2_older_names_are_found(text: str, name: str) -> None:
    read = parse(text, "vllm", model="m")
    assert read.names[Counter.LOCAL_QUERIES] == name
    assert read.samples[Counter.LOCAL_QUERIES] == 10


def test_met_2_the_name_chosen_at_the_start_stays_chosen() -> None:
    names = resolve(OLD, "vllm", model="m")
    assert parse(OLD + QUERIES.replace("10", "99"), "vllm", model="m", names=names).samples[Counter.LOCAL_QUERIES] == 10


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("", id="empty"),
        pytest.param(" \n\n", id="blank"),
        pytest.param("<html><body>Bad gateway</body></html>\n", id="html"),
        pytest.param('{"detail":"Not Found"}\n', id="json"),
        pytest.param(QUERIES + 'vllm:prefix_cache_hits_total{engine="0",model_na', id="cut off"),
        pytest.param('vllm:prefix_cache_hits_total{engine="0} 5\n', id="open label"),
    ],
)
def test_met_2_a_body_that_is_no_exposition_is_an_error_and_never_zeros(body: str) -> None:
    with pytest.raises(ExpositionError):
        parse(body, "vllm", model="m")
    snapshot = read_snapshot(body, "vllm", target="A", at_ns=1, model="m")
    assert snapshot.error
    assert not snapshot.samples


def test_met_2_a_failed_scrape_makes_its_window_missing_with_the_reason() -> None:
    before = read_snapshot(QUERIES, "vllm", target="A", at_ns=1, model="m")
    after = read_snapshot("<html>\n", "vllm", target="A", at_ns=2, model="m")
    delta = difference(before, after)[Counter.LOCAL_QUERIES]
    assert isinstance(delta, Missing)
    assert "after" in delta.reason
    assert "html" in delta.reason


def snapshots(local: tuple[int, int], external: tuple[int, int]) -> tuple[Snapshot, Snapshot]:
    def body(queries: int, hits: int, external_queries: int, external_hits: int) -> str:
        return (
            f'vllm:prefix_cache_queries_total{{engine="0",model_name="m"}} {queries}\n'
            f'vllm:prefix_cache_hits_total{{engine="0",model_name="m"}} {hits}\n'
            f'vllm:external_prefix_cache_queries_total{{engine="0",model_name="m"}} {external_queries}\n'
            f'vllm:external_prefix_cache_hits_total{{engine="0",model_name="m"}} {external_hits}\n'
        )

    first = read_snapshot(body(0, 0, 0, 0), "vllm", target="A", at_ns=1, model="m")
    return first, read_snapshot(body(*local, *external), "vllm", target="A", at_ns=2, model="m")


@pytest.mark.parametrize("external", [(1000, 200), (400, 200), (2000, 200)])
def test_met_3_all_four_raw_deltas_are_kept_as_they_are(external: tuple[int, int]) -> None:
    deltas = difference(*snapshots((1000, 600), external))
    values = [delta.delta for delta in deltas.values() if isinstance(delta, Increase)]
    assert values == [1000, 600, *external]
