import math
import re
import xml.etree.ElementTree as ET

import pytest

from harness.report.plots import Series, SlopeGroup, log_limits, log_panel, size_positions, slope_panel
from harness.report.svg import LINKED_MARKS, Mark, themed

SIZES = (("8k", 8_000), ("32k", 32_000), ("128k", 128_000))


def parsed(text):
    return ET.fromstring(text)  # noqa: S314 - the project's own figure


def panel(count=4, label="off 1.0 s", **changes):
    ticks = size_positions(SIZES)
    series = [
        Series(
            arm=arm,
            name=name,
            marks=tuple(Mark(x=x, y=1.0 + arm, label=label, href="#r1-2") for x, _ in ticks for _ in range(count)),
            medians=tuple((x, 1.0 + arm) for x, _ in ticks),
        )
        for arm, name in enumerate(("off", "on"))
    ]
    facts = {
        "name": "f",
        "title": "TTFT cold",
        "desc": "twelve marks",
        "series": series,
        "ticks": ticks,
        "limits": (0.5, 4.0),
    }
    return log_panel(**(facts | changes))


def test_every_observation_is_a_mark_with_a_target_and_a_tooltip():
    root = parsed(panel())
    marks = root.findall(".//g[@class='mark']")
    assert len(marks) == 24
    assert {mark.get("data-href") for mark in marks} == {"#r1-2"}
    assert {mark.find("title").text for mark in marks} == {"off 1.0 s"}


def test_many_observations_become_one_path_with_a_dot_each():
    count = LINKED_MARKS // 3 + 1
    root = parsed(panel(count=count))
    dots = [path.get("d") for path in root.iter("path") if path.get("stroke-linecap") == "round"]
    assert [text.count("h0") for text in dots] == [3 * count, 3 * count]


def test_a_figure_has_no_style_that_a_strict_policy_would_block():
    text = panel()
    assert "style=" not in text
    assert "<style" not in text


def test_every_colour_of_a_figure_is_a_variable_of_the_page():
    colours = set(re.findall(r'(?:fill|stroke)="([^"]+)"', panel()))
    assert colours <= {"none", *(f"var(--{name})" for name in ("ink", "muted", "rule", "paper", "arm-0", "arm-1"))}


def test_a_figure_names_itself_for_assistive_technology():
    root = parsed(panel())
    assert root.get("role") == "img"
    assert root.get("aria-labelledby") == "f-title f-desc"
    assert root.find("title").text == "TTFT cold"
    assert root.find("desc").text == "twelve marks"


def test_ids_of_two_figures_on_one_page_do_not_meet():
    ids = [set(re.findall(r' id="([^"]+)"', panel(name=name))) for name in ("a", "b")]
    assert not ids[0] & ids[1]


def test_every_reference_inside_a_figure_is_defined_in_it():
    text = panel()
    defined = set(re.findall(r' id="([^"]+)"', text))
    used = set(re.findall(r'<use[^>]* href="#([^"]+)"', text)) | set(re.findall(r"url\(#([^)]+)\)", text))
    assert used <= defined


def test_markup_in_a_label_stays_text():
    text = panel(label="<script>alert(1)</script>$x$")
    assert "<script" not in text
    assert "&lt;script&gt;" in text


def test_the_same_figure_gives_the_same_bytes():
    assert panel() == panel()


def test_a_slope_panel_draws_both_ends_of_every_pair():
    pairs = tuple((Mark(x=0, y=10 + i, label=f"off {i}"), Mark(x=0, y=8 + i, label=f"on {i}")) for i in range(3))
    groups = [SlopeGroup(label="fixed", arm=1, pairs=pairs, medians=(11.0, 9.0))]
    root = parsed(slope_panel(name="s", title="t", desc="d", groups=groups, arms=("off", "on"), unit="s"))
    assert sorted(mark.find("title").text for mark in root.findall(".//g[@class='mark']")) == sorted(
        f"{arm} {i}" for arm in ("off", "on") for i in range(3)
    )


def test_a_slope_panel_without_pairs_is_still_a_figure():
    groups = [SlopeGroup(label="fixed", arm=1, pairs=(), medians=None)]
    assert slope_panel(name="s", title="t", desc="d", groups=groups, arms=("off", "on"), unit="s").startswith("<svg")


def test_sizes_stand_at_their_logarithm():
    assert [round(2**position) for position, _ in size_positions(SIZES)] == [8_000, 32_000, 128_000]


def test_sizes_too_close_to_tell_apart_stand_at_even_steps():
    assert [position for position, _ in size_positions((("1k", 1_000), ("1.1k", 1_100), ("64k", 64_000)))] == [
        0.0,
        1.0,
        2.0,
    ]


@pytest.mark.parametrize("values", [[], [0.0], [-1.0]])
def test_a_log_axis_without_positive_values_still_has_limits(values):
    assert log_limits(values) == (0.1, 10.0)


def test_limits_leave_air_around_every_value():
    low, high = log_limits([0.05, 92.0, 0.0])
    assert low < 0.05
    assert high > 92.0
    assert math.isfinite(low)


def test_a_mark_that_was_not_drawn_is_an_error_not_a_silent_loss():
    svg = b'<svg xmlns="http://www.w3.org/2000/svg"><g id="obs"><g><use x="1" y="1"/></g></g></svg>'
    with pytest.raises(ValueError, match="1 marks were drawn for 2"):
        themed(
            svg, name="f", title="t", desc="d", marks={"obs": [Mark(x=0, y=0, label="a"), Mark(x=0, y=0, label="b")]}
        )
