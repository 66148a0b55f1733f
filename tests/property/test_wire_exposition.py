"""Whatever labels a server adds, sums are those of the wanted model, and nothing else leaks in."""

from hypothesis import given
from hypothesis import strategies as st

from harness.model.counting import Counter
from harness.wire.exposition import parse

LABEL_VALUES = st.text(alphabet=st.sampled_from('ab ,{}="\\\n#'), max_size=8)
NAMES = {
    Counter.LOCAL_QUERIES: "vllm:prefix_cache_queries_total",
    Counter.LOCAL_HITS: "vllm:prefix_cache_hits_total",
    Counter.EXTERNAL_HITS: "vllm:external_prefix_cache_hits_total",
}
SAMPLES = st.lists(
    st.tuples(
        st.sampled_from([*NAMES.values(), "vllm:prefix_cache_hits_created", "vllm:prefix_cache_hits_total_seconds"]),
        LABEL_VALUES,
        LABEL_VALUES,
        st.integers(0, 2**53),
    ),
    min_size=1,
    max_size=20,
    unique_by=lambda sample: sample[:3],
)


def escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@given(SAMPLES, st.booleans())
def test_sums_are_those_of_the_wanted_model(samples: list[tuple[str, str, str, int]], trailing_comma: bool) -> None:
    comma = "," if trailing_comma else ""
    text = "".join(
        f'{name}{{engine="{escaped(engine)}",model_name="{escaped(model)}"{comma}}} {value}\n'
        for name, engine, model, value in samples
    )
    wanted = samples[0][2]
    read = parse(text, "vllm", model=wanted).samples
    for counter, name in NAMES.items():
        values = [value for sample, _, model, value in samples if sample == name and model == wanted]
        assert read.get(counter) == (float(sum(values)) if values else None)
