import csv
import io
from itertools import product

import duckdb
import pyarrow.parquet as pq
import pytest
from axe_playwright_python.sync_playwright import Axe
from made import HOSTILE, full, hostile, scaled, small

NAMES = ("small", "full", "hostile", "arms", "scaled")
OPEN = """document.querySelectorAll('details').forEach((entry) => {
  entry.open = entry.closest('.pairs') === null || entry.closest('li') === entry.closest('ul').querySelector('li');
})"""
"""Opens everything but all pairs beyond the first of each workload."""

CONTRASTS = """() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (node) => {
    for (let at = node; at !== null; at = at.parentElement) {
      const found = parse(getComputedStyle(at).backgroundColor);
      if (found.length === 3 || found[3] === 1) return found;
    }
    return [255, 255, 255];
  };
  const poor = [];
  for (const node of document.querySelectorAll("body *")) {
    const texts = [...node.childNodes].filter((child) => child.nodeType === 3);
    const text = texts.map((child) => child.data.trim()).join(" ");
    const unseen = ["SCRIPT", "STYLE", "title", "desc"].includes(node.tagName) || !node.checkVisibility();
    if (!text.trim() || unseen) continue;
    const style = getComputedStyle(node);
    const ink = parse(node instanceof SVGElement ? style.fill : style.color);
    const [a, b] = [light(ink), light(ground(node))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) poor.push(`${ratio.toFixed(2)} ${node.tagName} ${text.slice(0, 40)}`);
  }
  return poor;
}"""


def stored(run, folder, sql):
    """A query over the screening's rows after a round trip through Parquet, by another reader than the report's."""
    for block in run.blocks:
        pq.write_table(block.requests, folder / f"{block.position}.parquet")
    return duckdb.sql(sql.format(files=f"read_parquet('{folder}/*.parquet')")).fetchall()


@pytest.mark.parametrize("name", NAMES)
def test_a_report_opens_without_error_request_or_policy_violation(watch, reports, name):
    seen = watch(reports[name])
    seen.page.locator(".pairs > li summary").first.click()
    seen.page.emulate_media(color_scheme="dark")
    seen.page.wait_for_function("document.readyState === 'complete'")
    assert seen.console == []
    assert seen.violations == []
    assert [url for url in seen.requests if not url.startswith("file:")] == []
    assert len(seen.requests) == 1


def test_the_policy_really_blocks_what_is_not_the_projects_own(watch, reports):
    seen = watch(reports["small"])
    seen.page.evaluate("""() => {
      const script = document.createElement("script");
      script.textContent = "window.hacked = 1";
      const image = document.createElement("img");
      image.src = "https://example.invalid/x.png";
      document.body.append(script, image);
    }""")
    seen.page.wait_for_function("document.images.length === 1")
    assert seen.page.evaluate("window.hacked") is None
    assert len(seen.violations) == 2


def test_hostile_text_is_shown_as_text(watch, reports):
    seen = watch(reports["hostile"])
    seen.page.evaluate(OPEN)
    answers = seen.page.locator("pre.model-output").all_text_contents()
    assert HOSTILE in answers
    assert seen.page.evaluate("window.hacked") is None
    assert seen.page.locator("main img").count() == 0
    assert seen.page.locator("script").count() == 2


def test_a_pair_opens_by_click(watch, reports):
    page = watch(reports["small"]).page
    pair = page.locator(".pairs > li").first
    assert not pair.locator(".body").is_visible()
    pair.locator("summary").first.click()
    assert pair.locator(".body").is_visible()
    assert pair.get_by_role("heading", name="off").is_visible()


def test_a_pair_opens_by_keyboard(watch, reports):
    page = watch(reports["small"]).page
    pair = page.locator(".pairs > li").nth(1)
    pair.locator("summary").first.focus()
    page.keyboard.press("Enter")
    assert pair.locator(".body").is_visible()
    page.keyboard.press("Enter")
    assert not pair.locator(".body").is_visible()


def test_the_first_tab_stop_skips_to_the_verdict(watch, reports):
    page = watch(reports["small"]).page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the verdict"
    assert page.evaluate("document.activeElement.getBoundingClientRect().left >= 0")


def test_an_observation_leads_to_its_request_and_opens_it(watch, reports):
    page = watch(reports["small"]).page
    link = page.locator("#ttft td .obs a").last
    target = link.get_attribute("href")
    link.click()
    opened = page.locator(f"[id='{target[1:]}'] .body")
    opened.wait_for(state="visible")
    assert opened.locator("table").first.is_visible()


def test_a_click_on_a_mark_of_a_figure_leads_to_its_request(watch, reports):
    page = watch(reports["small"]).page
    mark = page.locator("#ttft figure").last.locator(".mark").last  # drawn on top
    target = mark.get_attribute("data-href")
    mark.click()
    page.locator(f"[id='{target[1:]}'] .body").wait_for(state="visible")


def test_a_link_from_outside_opens_its_request(watch, reports):
    page = watch(reports["small"], fragment="#r2-10").page
    page.locator("#r2-10 .body").wait_for(state="visible")


def test_everything_but_filter_and_download_works_without_script(watch, reports):
    page = watch(reports["small"], java_script_enabled=False).page
    assert page.locator("#ttft table").is_visible()
    assert not page.locator("button[data-csv]").first.is_visible()
    page.locator(".pairs > li summary").first.click()
    assert page.locator(".pairs > li .body").first.is_visible()


def test_the_filter_keeps_pairs_that_hold_every_word(watch, reports):
    page = watch(reports["small"]).page
    page.get_by_label("Filter").fill("sessions/32k fixed turn-2")
    shown = page.locator(".pairs > li:visible")
    assert {shown.nth(i).locator(".key").text_content() for i in range(shown.count())} == {
        "32k/fixed/0/turn-2",
        "32k/fixed/1/turn-2",
    }


def test_the_filter_can_keep_what_has_findings(watch, reports):
    page = watch(reports["hostile"]).page
    page.get_by_label("only with findings").check()
    assert page.locator(".pairs > li:visible .key").all_text_contents() == ["8k/0/cold"]


def shown_medians(page, section):
    """(first label, second label, arm) → the median as the table shows it."""
    rows = page.locator(f"#{section} tbody tr").evaluate_all(
        """(rows) => rows.map((row) => [row.querySelector("th").textContent, row.querySelector("td").textContent,
             ...[...row.querySelectorAll("td.num")].slice(0, 2).map((cell) => cell.firstChild.data.trim())])"""
    )
    return {
        (first, second, arm): value
        for first, second, *both in rows
        for arm, value in zip(("off", "on"), both, strict=True)
    }


def test_shown_medians_are_those_of_the_parquet(watch, reports, tmp_path):
    rows = stored(
        full()[0],
        tmp_path,
        "select size, step, plays, median((first_content_ns - start_ns) / 1e9 / time_scale) from {files}"
        " where workload = 'chains' group by all",
    )
    names = {"cold": "cold", "local-1": "local (first)", "local-2": "local (second, stored apart)"}
    names |= {"cross": "cross", "receiver-local": "local on the receiver"}
    shown = shown_medians(watch(reports["full"]).page, "ttft")
    assert shown == {
        (size, names[step], plays): f"{value:.3f}" if value >= 1 else f"{value:.4f}"
        for size, step, plays, value in rows
    }


def test_shown_session_times_are_sums_of_the_parquets_turns(watch, reports, tmp_path):
    rows = stored(
        scaled()[0],
        tmp_path,
        "with units as (select size, placement, plays, pair, unit,"
        " sum(recorded_ns - start_ns) / 1e9 / any_value(time_scale) as wall from {files}"
        " where workload = 'sessions' group by all)"
        " select size, placement, plays, median(wall) from units group by all",
    )
    shown = shown_medians(watch(reports["scaled"]).page, "sessions")
    assert shown == {(size, placement, plays): f"{value:.3f}" for size, placement, plays, value in rows}


def test_the_drilldown_shows_the_stored_counters(watch, reports, tmp_path):
    rows = stored(
        small()[0],
        tmp_path,
        "select local_hits, external_hits, payload_sha256 from {files}"
        " where pair = 1 and key = 'chains/8k/0/cross' and plays = 'on'",
    )
    local, external, sha = rows[0]
    page = watch(reports["small"]).page
    pair = page.locator(".pairs > li", has_text="8k/0/cross").first
    pair.locator("summary").first.click()
    side = pair.locator(".sides > div").nth(1)
    counters = dict(
        zip(
            side.locator("tbody th").all_text_contents(), side.locator("tbody th + td").all_text_contents(), strict=True
        )
    )
    assert (counters["local hits"], counters["external hits"]) == (f"{local:,}", f"{external:,}")
    assert sha in side.text_content()


def downloaded(page, table):
    with page.expect_download() as event:
        page.locator(f"button[data-csv='{table}']").click()
    return event.value.suggested_filename, list(
        csv.DictReader(io.StringIO(event.value.path().read_bytes().decode("utf-8"), newline=""))
    )


def test_the_downloaded_requests_are_the_parquets_rows(watch, reports, tmp_path):
    rows = stored(
        hostile()[0],
        tmp_path,
        "select key, block, start_ns, ttft_ns, external_hits, answer from {files} order by block, seq",
    )
    name, read = downloaded(watch(reports["hostile"]).page, "requests")
    assert name == "synthetic-20261130-000000-requests.csv"
    columns = ("key", "block", "start_ns", "ttft_ns", "external_hits", "answer")
    assert [tuple(row[column] for column in columns) for row in read] == [
        tuple("" if value is None else str(value) for value in row) for row in rows
    ]


def test_the_downloaded_observations_are_the_statistics(watch, reports):
    _, read = downloaded(watch(reports["small"]).page, "observations")
    effect = small()[2].table.find("ttft/8k/cross")
    mine = [(float(row["baseline"]), float(row["treatment"])) for row in read if row["cell"] == "ttft/8k/cross"]
    assert mine == [(off, on) for _, _, off, on in effect.observations]


@pytest.mark.parametrize("name", NAMES)
def test_no_page_scrolls_sideways_at_any_width_in_any_scheme(watch, reports, tmp_path, name):
    page = watch(reports[name]).page
    page.locator(".pairs > li summary").first.click()
    for width, scheme in product((390, 768, 1400), ("light", "dark")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        picture = tmp_path / f"{name}-{width}-{scheme}.png"
        page.screenshot(path=picture)
        assert picture.stat().st_size > 10_000


def test_dark_and_light_are_two_pages(watch, reports):
    grounds = {
        scheme: watch(reports["small"], scheme=scheme).page.evaluate("getComputedStyle(document.body).backgroundColor")
        for scheme in ("light", "dark")
    }
    assert grounds["light"] != grounds["dark"]


@pytest.mark.parametrize("name", ["hostile", "arms"])
def test_every_text_has_a_contrast_of_four_and_a_half(watch, reports, name):
    page = watch(reports[name]).page
    page.evaluate(OPEN)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate(CONTRASTS) == []


def test_axe_finds_no_barrier(watch, reports):
    page = watch(reports["hostile"]).page
    page.locator(".pairs > li summary").first.click()
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


def test_figures_have_names_and_descriptions(watch, reports):
    page = watch(reports["full"]).page
    for figure in page.locator("svg.plot").all():
        title, desc = figure.get_attribute("aria-labelledby").split()
        assert page.locator(f"[id='{title}']").text_content()
        assert "median" in page.locator(f"[id='{desc}']").text_content()


def test_in_print_the_verdict_stays_and_controls_go(watch, reports):
    page = watch(reports["hostile"]).page
    page.emulate_media(media="print")
    assert page.locator(".verdict").is_visible()
    assert not page.locator("nav.toc").is_visible()
    assert not page.locator(".controls").first.is_visible()


def test_the_contents_follow_the_reader(watch, reports):
    page = watch(reports["full"]).page
    page.locator("nav.toc a[href='#findings']").click()
    page.locator("nav.toc a[href='#findings'][aria-current]").wait_for()
