"""How numbers are written, the same in page, terminal and comparisons. Absent is a dash, never 0."""

from __future__ import annotations

DASH = "–"
MINUS = "\N{MINUS SIGN}"
NARROW = "\N{NARROW NO-BREAK SPACE}"


def seconds(value: float | None) -> str:
    """Seconds with three decimals, as the paper prints them; below a second with four, below 10 ms with six."""
    if value is None:
        return DASH
    size = abs(value)
    return f"{value:,.3f}" if size >= 1 or size == 0 else f"{value:.4f}" if size >= 0.01 else f"{value:.6f}"


def milliseconds(value_ns: float | None, *, scale: float = 1.0) -> str:
    """Nanoseconds as milliseconds, scaled by the row's time scale."""
    return DASH if value_ns is None else f"{value_ns / 1e6 / scale:,.3f}"


def signed(value: float | None, digits: int = 2) -> str:
    """A signed number with a real minus sign; a value that rounds to zero carries no sign."""
    if value is None:
        return DASH
    text = f"{value:+,.{digits}f}"
    if not text.strip("+-0.,"):
        return text.lstrip("+-")
    return text.replace("-", MINUS)


def percent(value: float | None, digits: int = 2) -> str:
    """A signed percentage (the value is in percent already)."""
    return DASH if value is None else f"{signed(value, digits)}{NARROW}%"


def count(value: float | None) -> str:
    """A whole number with thousands separators."""
    return DASH if value is None else f"{round(value):,}".replace("-", MINUS)


def rate(value: float | None) -> str:
    """Tokens per second."""
    return DASH if value is None else f"{value:,.1f}"


def axis_seconds(value: float) -> str:
    """A tick label: `50 ms`, `1 s`, `100 s`."""
    if value < 0.001:
        return f"{value * 1e6:g} µs"
    return f"{value * 1e3:g} ms" if value < 1 else f"{value:g} s"


def plural(number: int, noun: str, many: str | None = None) -> str:
    """`1 row`, `2 rows`, `1,234 rows`."""
    return f"{number:,} {noun if number == 1 else many or noun + 's'}"
