"""Logical blocks over packed kernel pages, on numpy or torch arrays alike.

A logical attention block of T tokens is P kernel pages of p tokens (T = P · p; 1,568 = 49 · 32 for the hybrid model
of the paper). Only `reshape`, `permute`/`transpose`, indexing and assignment are used, which numpy and torch share.

Shapes (N pages, p tokens a page, H heads, D head size):

- rank 4, HND `[N, H, p, 2·D]`, NHD `[N, p, H, 2·D]`: key and value packed in the last axis
- rank 5, HND `[2, N, H, p, D]`, NHD `[2, N, p, H, D]`: key and value in the first axis
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Order = Literal["HND", "NHD"]


class LayoutRefused(ValueError):
    """The pages cannot be viewed as whole logical blocks; the message carries the numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One kernel layout: rank 4 or 5, head order, page size p, heads H, head size D, element bytes."""

    rank: Literal[4, 5]
    order: Order
    page_tokens: int
    heads: int
    head_size: int

    @property
    def name(self) -> str:
        """Short name for tables."""
        return f"rank-{self.rank} {self.order} page {self.page_tokens}"

    def shape(self, pages: int) -> tuple[int, ...]:
        """Shape of a pool of that many pages."""
        middle = (self.heads, self.page_tokens) if self.order == "HND" else (self.page_tokens, self.heads)
        if self.rank == 4:
            return (pages, *middle, 2 * self.head_size)
        return (2, pages, *middle, self.head_size)


def pages_per_block(block_tokens: int, layout: Layout, pages: int) -> int:
    """P = T / p; raises LayoutRefused where T is no multiple of p or the pool is no multiple of P."""
    per_block, rest = divmod(block_tokens, layout.page_tokens)
    if rest:
        raise LayoutRefused(
            f"{block_tokens} tokens a block are not a whole number of pages of {layout.page_tokens} (rest {rest})"
        )
    if pages % per_block:
        raise LayoutRefused(
            f"{pages} pages do not divide into blocks of {per_block} pages (rest {pages % per_block}), {layout.name}"
        )
    return per_block


def _permute(array: Any, axes: Sequence[int]) -> Any:
    return array.permute(*axes) if hasattr(array, "permute") else array.transpose(tuple(axes))


def token_major(pool: Any, layout: Layout) -> Any:
    """The pool as a view `[2, N, p, H, D]`, whatever its layout; no bytes move."""
    if layout.rank == 4:
        split = pool.reshape(*pool.shape[:-1], 2, layout.head_size)  # [N, a, b, 2, D]
        axes = (3, 0, 2, 1, 4) if layout.order == "HND" else (3, 0, 1, 2, 4)
        return _permute(split, axes)
    return _permute(pool, (0, 1, 3, 2, 4)) if layout.order == "HND" else pool


def logical_block(pool: Any, layout: Layout, block_tokens: int, block: int) -> Any:
    """Logical block `block` as a new array `[2, T, H, D]`, tokens in order; its pages are consecutive in the pool."""
    view = token_major(pool, layout)
    per_block = pages_per_block(block_tokens, layout, view.shape[1])
    pages = view[:, block * per_block : (block + 1) * per_block]
    return pages.reshape(2, block_tokens, layout.heads, layout.head_size)


def gather(pool: Any, layout: Layout, page_ids: Sequence[int]) -> Any:
    """The named pages as one chunk `[2, len(page_ids)·p, H, D]`, in the order named."""
    pages = token_major(pool, layout)[:, list(page_ids)]
    return pages.reshape(2, len(page_ids) * layout.page_tokens, layout.heads, layout.head_size)


def scatter(pool: Any, layout: Layout, page_ids: Sequence[int], chunk: Any) -> None:
    """Write a chunk `[2, len(page_ids)·p, H, D]` into the named pages; all other pages stay as they are."""
    view = token_major(pool, layout)
    view[:, list(page_ids)] = chunk.reshape(2, len(page_ids), layout.page_tokens, layout.heads, layout.head_size)
