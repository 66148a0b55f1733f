"""Turns matplotlib's SVG into markup that lives inside the page.

Three things are changed, so that a strict content-security policy and two colour schemes work without a second
rendering: `style` attributes and `<style>` elements become presentation attributes (a policy without `unsafe-inline`
blocks the former); the stand-in colours of `Ink` become CSS variables of the page; every id gets the figure's own
prefix, because one page holds many figures. Observations get a tooltip and a target that the page's script follows on a
click; they are no links, because a figure with role `img` has no interactive parts: its table has the links.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

_SVG = "http://www.w3.org/2000/svg"
_XLINK = "{http://www.w3.org/1999/xlink}href"

LINKED_MARKS = 400
"""A longer series is drawn as one path of dots: all observations are shown, none has a target of its own."""


class Ink(StrEnum):
    """Stand-in colours handed to matplotlib; each becomes the CSS variable in `VARIABLES`."""

    INK = "#010101"
    MUTED = "#020202"
    RULE = "#030303"
    PAPER = "#040404"
    ARM_0 = "#0a0000"
    ARM_1 = "#0a0001"
    ARM_2 = "#0a0002"
    ARM_3 = "#0a0003"


VARIABLES: Mapping[str, str] = {
    Ink.INK: "var(--ink)",
    Ink.MUTED: "var(--muted)",
    Ink.RULE: "var(--rule)",
    Ink.PAPER: "var(--paper)",
    Ink.ARM_0: "var(--arm-0)",
    Ink.ARM_1: "var(--arm-1)",
    Ink.ARM_2: "var(--arm-2)",
    Ink.ARM_3: "var(--arm-3)",
}
ARM_INKS = (Ink.ARM_0, Ink.ARM_1, Ink.ARM_2, Ink.ARM_3)

_KEPT = frozenset(
    {"fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "fill-opacity", "opacity"}
    | {"font-size", "font-weight", "text-anchor", "stroke-linecap", "stroke-linejoin"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One observation in a figure: where it stands, what a pointer sees, and where it leads (`#id` in the page)."""

    x: float
    y: float
    label: str
    href: str | None = None


def themed(svg: bytes, *, name: str, title: str, desc: str, marks: Mapping[str, Sequence[Mark]]) -> str:
    """The figure as an inline `<svg>`; `marks` maps a matplotlib gid to its observations in drawing order."""
    ET.register_namespace("", _SVG)
    root = ET.fromstring(svg)  # noqa: S314 - matplotlib's own output, no document type with entities
    _strip_namespaces(root)
    for element in list(root.iter()):
        _restyle(element)
    for gid, observations in marks.items():
        group = root.find(f".//*[@id='{gid}']")
        if group is not None:
            _annotate(group, observations)
    _prefix_ids(root, name)
    _label(root, name=name, title=title, desc=desc)
    return ET.tostring(root, encoding="unicode", short_empty_elements=True)


def _strip_namespaces(root: ET.Element) -> None:
    """Drop prefixes, metadata and style sheets: inline SVG in HTML needs no namespace, and `href` no xlink."""
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.rpartition("}")[2] in {"metadata", "style"}:
                parent.remove(child)
        parent.tag = parent.tag.rpartition("}")[2]
        if _XLINK in parent.attrib:
            parent.set("href", parent.attrib.pop(_XLINK))
        parent.text = parent.text if parent.tag in {"text", "tspan"} else None
        parent.tail = None


def _restyle(element: ET.Element) -> None:
    style = element.attrib.pop("style", "")
    for declaration in style.split(";"):
        name, _, value = declaration.partition(":")
        name, value = name.strip(), value.strip()
        if name in _KEPT:
            element.set(name, VARIABLES.get(value, value))
    if element.tag == "path" and "d" in element.attrib:
        element.set("d", _short(element.get("d", "")))


def _short(path: str) -> str:
    """Path data with two decimals: a tenth of a pixel is finer than any screen shows."""
    return re.sub(
        r"-?\d+\.\d+", lambda number: f"{float(number[0]):.2f}".rstrip("0").rstrip("."), " ".join(path.split())
    )


def _annotate(series: ET.Element, observations: Sequence[Mark]) -> None:
    uses = [(parent, child) for parent in series.iter() for child in parent if child.tag == "use"]
    if len(uses) != len(observations):
        raise ValueError(f"{len(uses)} marks were drawn for {len(observations)} observations")
    if len(uses) > LINKED_MARKS:
        _as_dots(series, [use for _, use in uses])
        return
    for (parent, use), mark in zip(uses, observations, strict=True):
        group = ET.Element("g", {"class": "mark"} | ({"data-href": mark.href} if mark.href else {}))
        ET.SubElement(group, "title").text = mark.label
        parent.insert(list(parent).index(use), group)
        parent.remove(use)
        group.append(use)


def _as_dots(group: ET.Element, uses: Sequence[ET.Element]) -> None:
    """Replace thousands of markers by one path of zero-length strokes with round caps: a dot each, ten bytes each."""
    points = " ".join(f"M{float(use.get('x', '0')):.1f} {float(use.get('y', '0')):.1f}h0" for use in uses)
    colour = uses[0].get("stroke") or uses[0].get("fill") or "currentColor"
    for child in list(group):
        group.remove(child)
    attributes = {"d": points, "fill": "none", "stroke": colour, "stroke-width": "3.6", "stroke-linecap": "round"}
    ET.SubElement(group, "path", attributes | {"stroke-opacity": "0.45"})


def _prefix_ids(root: ET.Element, name: str) -> None:
    used = {reference for element in root.iter() for reference in _references(element)}
    for element in root.iter():
        identifier = element.attrib.pop("id", None)
        if identifier in used:
            element.set("id", f"{name}-{identifier}")
        target = element.get("href", "")
        if element.tag == "use" and target.startswith("#"):
            element.set("href", f"#{name}-{target[1:]}")
        if "clip-path" in element.attrib:
            element.set("clip-path", element.attrib["clip-path"].replace("url(#", f"url(#{name}-"))


def _references(element: ET.Element) -> Iterator[str]:
    if element.tag == "use":
        yield element.get("href", "#")[1:]
    yield from re.findall(r"url\(#([^)]+)\)", element.get("clip-path", ""))


def _label(root: ET.Element, *, name: str, title: str, desc: str) -> None:
    """`<title>` and `<desc>` come first and name the figure for assistive technology; the size follows the page."""
    for attribute in ("width", "height", "version"):
        root.attrib.pop(attribute, None)
    root.set("role", "img")
    root.set("aria-labelledby", f"{name}-title {name}-desc")
    root.set("class", "plot")
    for position, (tag, text) in enumerate((("title", title), ("desc", desc))):
        element = ET.Element(tag, {"id": f"{name}-{tag}"})
        element.text = text
        root.insert(position, element)
