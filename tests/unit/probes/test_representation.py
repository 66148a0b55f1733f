import numpy as np
import pytest

from harness.probes import representation
from harness.probes.paging import Layout, LayoutRefused, gather, logical_block, pages_per_block, scatter, token_major

LAYOUTS = [
    Layout(rank=rank, order=order, page_tokens=4, heads=3, head_size=5) for rank in (4, 5) for order in ("HND", "NHD")
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_a_gathered_chunk_holds_the_bytes_its_positions_demand(layout: Layout) -> None:
    pool = representation.filled_pool(layout, 6)
    assert np.array_equal(gather(pool, layout, [4, 1, 5]), representation.expected_chunk(layout, [4, 1, 5]))


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_scatter_leaves_every_other_page_untouched(layout: Layout) -> None:
    target = np.full(layout.shape(5), representation.POISON, dtype=np.uint8)
    scatter(target, layout, [3], representation.expected_chunk(layout, [0]))
    untouched = token_major(target, layout)[:, [0, 1, 2, 4]]
    assert np.all(untouched == representation.POISON)
    assert np.array_equal(gather(target, layout, [3]), representation.expected_chunk(layout, [0]))


def test_a_logical_block_is_its_pages_in_order() -> None:
    layout = Layout(rank=5, order="HND", page_tokens=32, heads=2, head_size=8)
    pool = representation.filled_pool(layout, 98)
    want = representation.expected_chunk(layout, range(49, 98))
    assert np.array_equal(logical_block(pool, layout, 1568, 1), want)


def test_a_pool_whose_pages_do_not_divide_is_refused_with_the_numbers() -> None:
    layout = Layout(rank=4, order="NHD", page_tokens=32, heads=2, head_size=8)
    with pytest.raises(LayoutRefused, match=r"1000 pages .* blocks of 49 pages \(rest 20\)"):
        pages_per_block(1568, layout, 1000)


def test_the_pattern_tells_neighbouring_positions_apart() -> None:
    layout = Layout(rank=5, order="NHD", page_tokens=32, heads=2, head_size=16)
    pool = representation.filled_pool(layout, 4)
    swapped = pool[:, [1, 0, 2, 3]]
    differing = np.mean(pool[:, :2] != swapped[:, :2])
    assert differing > 0.98


def test_a_single_flipped_byte_fails_the_round_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout(rank=4, order="HND", page_tokens=16, heads=2, head_size=16)

    def damaged(pool: np.ndarray, layout: Layout, ids: list[int]) -> np.ndarray:
        chunk = gather(pool, layout, ids)
        chunk.reshape(-1)[7] ^= 1
        return chunk

    assert representation.round_trip(256, layout, np.copy, "numpy").ok
    monkeypatch.setattr(representation, "gather", damaged)
    assert not representation.round_trip(256, layout, np.copy, "numpy").ok
