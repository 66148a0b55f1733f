"""Layer 1, representation: does a logical block survive gather and scatter over packed kernel pages, byte for byte?

Every byte of every page is written with a pattern that depends on its position (page, token, head, dimension, key or
value), so that a byte at any other place is recognised. The expected bytes of a chunk are computed from the positions
themselves, never by the code under test.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.probes.paging import Layout, LayoutRefused, gather, logical_block, pages_per_block, scatter
from harness.probes.results import Check, LayerResult, from_checks

POISON = 0xA5
"""Fills the destination pool; a page that must stay untouched still holds it afterwards."""

BLOCKS: tuple[tuple[int, int], ...] = ((1568, 32), (1568, 16), (256, 16), (128, 128), (784, 16))
"""(tokens a logical block, tokens a kernel page)."""


def pattern(kv: Any, page: Any, token: Any, head: Any, dim: Any) -> npt.NDArray[np.uint8]:
    """Position-dependent byte: the low byte of a 64-bit mix (splitmix64's finaliser) of the coordinates, broadcast."""
    x = np.ones(1, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for part in (kv, page, token, head, dim):
            x = (x * np.uint64(0x9E3779B97F4A7C15)) ^ (np.asarray(part, dtype=np.uint64) + np.uint64(0x7F4A7C15))
            x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x ^= x >> np.uint64(27)
    return (x & np.uint64(0xFF)).astype(np.uint8)


def expected_chunk(layout: Layout, page_ids: Sequence[int]) -> npt.NDArray[np.uint8]:
    """What a chunk `[2, len(page_ids)·p, H, D]` gathered from a filled pool must hold."""
    pages = np.repeat(np.asarray(page_ids), layout.page_tokens)
    tokens = np.tile(np.arange(layout.page_tokens), len(page_ids))
    return pattern(
        np.arange(2)[:, None, None, None],
        pages[None, :, None, None],
        tokens[None, :, None, None],
        np.arange(layout.heads)[None, None, :, None],
        np.arange(layout.head_size)[None, None, None, :],
    )


def filled_pool(layout: Layout, pages: int) -> npt.NDArray[np.uint8]:
    """A pool in the layout's own shape, written element by element through its definition (not through `paging`)."""
    axes = {
        4: ("page", "head", "token", "kvdim") if layout.order == "HND" else ("page", "token", "head", "kvdim"),
        5: ("kv", "page", "head", "token", "dim") if layout.order == "HND" else ("kv", "page", "token", "head", "dim"),
    }[layout.rank]
    shape = layout.shape(pages)
    grid = {name: np.arange(size).reshape([-1 if i == j else 1 for j in range(len(shape))])
            for i, (name, size) in enumerate(zip(axes, shape, strict=True))}  # fmt: skip
    kv = grid["kvdim"] // layout.head_size if "kvdim" in grid else grid["kv"]
    dim = grid["kvdim"] % layout.head_size if "kvdim" in grid else grid["dim"]
    return pattern(kv, grid["page"], grid["token"], grid["head"], dim)


def layouts(heads: int = 2, head_size: int = 16) -> list[tuple[int, Layout]]:
    """Every (block tokens, layout) pair of the layer."""
    return [
        (tokens, Layout(rank=rank, order=order, page_tokens=page, heads=heads, head_size=head_size))
        for tokens, page in BLOCKS
        for rank in (4, 5)
        for order in ("HND", "NHD")
    ]


def _to_numpy(array: Any) -> npt.NDArray[np.uint8]:
    return np.asarray(array.cpu().numpy() if hasattr(array, "cpu") else array)


def _differing(array: Any, want: Any) -> int:
    return int(np.sum(_to_numpy(array) != want))


def round_trip(block_tokens: int, layout: Layout, wrap: Callable[[Any], Any], where: str, blocks: int = 3) -> Check:
    """View, gather scattered pages, scatter them elsewhere, compare every byte of every page on both sides."""
    per_block = block_tokens // layout.page_tokens
    pages = blocks * per_block
    pool = wrap(filled_pool(layout, pages))
    order = np.random.default_rng(pages).permutation(pages).tolist()
    wrong_bytes: list[int] = []
    for block in range(blocks):
        ids = list(range(block * per_block, (block + 1) * per_block))
        wrong_bytes.append(_differing(logical_block(pool, layout, block_tokens, block), expected_chunk(layout, ids)))
    source, target = order[:per_block], order[-per_block:]
    chunk = gather(pool, layout, source)
    wrong_bytes.append(_differing(chunk, expected_chunk(layout, source)))
    destination = wrap(np.full(layout.shape(pages), POISON, dtype=np.uint8))
    scatter(destination, layout, target, chunk)
    for page in range(pages):
        want = expected_chunk(layout, [source[target.index(page)]]) if page in target else np.uint8(POISON)
        wrong_bytes.append(_differing(gather(destination, layout, [page]), want))
    return Check(
        name=f"{where}: {block_tokens} tokens = {per_block} pages, {layout.name}",
        trials=len(wrong_bytes),
        failures=sum(1 for wrong in wrong_bytes if wrong),
        detail=f"{sum(wrong_bytes)} wrong bytes; every byte of {2 * pages} pages compared",
        data={"wrong_bytes": sum(wrong_bytes), "pages": pages},
    )


def refusals() -> list[Check]:
    """Pools and blocks that do not divide must be refused, with the numbers in the message."""
    cases = (
        (1568, Layout(rank=4, order="NHD", page_tokens=32, heads=2, head_size=16), 1000, ("1000", "49")),
        (1568, Layout(rank=5, order="NHD", page_tokens=48, heads=2, head_size=16), 98, ("1568", "48")),
    )
    checks = []
    for tokens, layout, pages, numbers in cases:
        try:
            pages_per_block(tokens, layout, pages)
            message = "accepted"
        except LayoutRefused as refused:
            message = str(refused)
        named = all(number in message for number in numbers)
        checks.append(
            Check(name=f"refused: {pages} pages, {layout.name}", trials=1, failures=int(not named), detail=message)
        )
    return checks


def backends() -> dict[str, Callable[[Any], Any]]:
    """Array kinds on this machine: numpy always, torch on the CPU and on every visible GPU where installed."""
    found: dict[str, Callable[[Any], Any]] = {"numpy": lambda array: array.copy()}
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return found
    found["torch cpu"] = lambda array: torch.from_numpy(array.copy())
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        found[f"torch cuda:{index}"] = lambda array, i=index: torch.from_numpy(array.copy()).to(f"cuda:{i}")  # type: ignore[misc]  # a lambda's default has no annotation
    return found


def run() -> LayerResult:
    """All layouts on all array kinds, refusals, and LMCache's own transfer path where it is installed."""
    from harness.probes import lmcache_paths  # noqa: PLC0415 - looks for LMCache only when asked

    started = time.monotonic()
    kinds = backends()
    checks = [round_trip(tokens, layout, wrap, name) for name, wrap in kinds.items() for tokens, layout in layouts()]
    checks += refusals()
    own, facts = lmcache_paths.drive_transfer()
    return from_checks(
        "representation",
        checks + own,
        facts={"backends": list(kinds), "lmcache": facts},
        seconds=time.monotonic() - started,
    )
