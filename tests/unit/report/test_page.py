import json
import re
from dataclasses import replace

import pytest
from made import HOSTILE, analysed, full, hostile, many_arms, scaled, small
from synthetic import make_run, screening

from harness.model.findings import ExcludedUnit
from harness.model.stored import ExcludedBlock
from harness.report import render, write_report
from harness.report.page import folder_label


def embedded(page):
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])


def cells(page, section):
    start = page.index(f'<section id="{section}"')
    return re.sub(r"<[^>]+>", " ", page[start : page.index("</section>", start)])


def test_the_same_folder_gives_the_same_bytes():
    assert render(*small()) == render(*small())


def test_the_page_is_written_whole_and_leaves_nothing_else(tmp_path):
    path = write_report(*small(), tmp_path / "deep" / "report.html")
    assert path.read_text(encoding="utf-8").endswith("</html>")
    assert [entry.name for entry in path.parent.iterdir()] == ["report.html"]


def test_nothing_in_the_page_is_fetched_from_elsewhere():
    page = render(*full())
    assert not re.findall(r'(?:src|href|action)="(?!#)[^"]*"', page)
    assert not re.findall(r"url\((?!#)", page)
    assert "@import" not in page


def test_the_page_has_no_inline_style_or_handler():
    page = render(*hostile())
    body = page[page.index("<body>") : page.index('<script type="application/json"')]
    assert not re.findall(r"<[^>]*\s(?:style|on\w+)=", body)


def test_a_simulated_run_says_so_in_the_title():
    assert re.search(r"<title>[^<]*simulated</title>", render(*small()))


def test_a_real_run_does_not():
    run, verdict, effects = small()
    real = replace(run, screening=replace(run.screening, engine=replace(run.screening.engine, kind="vllm")))
    assert "simulated" not in re.search(r"<title>([^<]*)</title>", render(real, verdict, effects))[1]


def test_a_void_verdict_is_stamped_across_every_figure_and_table_of_results():
    page = render(*hostile())
    assert page.count("<figure") == page.count('<figure data-stamp="VOID"')
    assert page.count('<div class="evidence"') == page.count('<div class="evidence" data-stamp="VOID"')
    assert '<div class="verdict void">' in page


def test_a_valid_verdict_is_not_stamped():
    assert "data-stamp=" not in re.sub(r"<style>.*?</style>", "", render(*small()), flags=re.DOTALL)


def test_an_unvalidated_run_carries_that_word_beside_the_verdict():
    heading = re.search(r'<h2 class="word".*?</h2>', render(*hostile()), re.DOTALL)[0]
    assert "unvalidated" in heading
    assert "unvalidated" not in re.search(r'<h2 class="word".*?</h2>', render(*small()), re.DOTALL)[0]


def test_hostile_text_stays_text():
    page = render(*hostile())
    assert "<script>window.hacked" not in page
    assert "<img src=x" not in page
    assert "49" not in re.search(r'<pre class="model-output">(&lt;/script&gt;.*?)</pre>', page, re.DOTALL)[1]


def test_hostile_text_is_carried_exactly_in_the_data():
    answers = next(column for column in embedded(render(*hostile()))["requests"] if column["name"] == "answer")
    assert HOSTILE in answers["values"]


def test_scaled_time_is_said_and_shown_scaled():
    page = render(*scaled())
    assert "time scale 0.05 throughout" in page
    assert "1.15" in cells(page, "ttft")


def test_every_ttft_observation_is_in_the_table():
    run, verdict, effects = small()
    text = cells(render(run, verdict, effects), "ttft")
    shown = text.split()
    for effect in effects.table.of_metric("ttft"):
        for _, _, off, on in effect.observations:
            for value in (off, on):
                assert (f"{value:.3f}" if value >= 1 else f"{value:.4f}") in shown


def test_links_of_observations_lead_to_pairs_of_the_page():
    page = render(*full())
    targets = set(re.findall(r'<li id="([^"]+)"', page))
    linked = set(re.findall(r'href="#(r\d[^"]+)"', page))
    assert linked
    assert linked <= targets


def test_ids_are_unique():
    ids = re.findall(r'\sid="([^"]+)"', render(*full()))
    assert len(ids) == len(set(ids))


def test_published_figures_stand_beside_measured_ones_for_the_papers_declaration_only():
    assert 'id="published"' in render(*full())
    assert 'id="published"' not in render(*small())


def test_the_floor_stands_beside_every_effect():
    run, verdict, effects = full()
    text = cells(render(run, verdict, effects), "changes")
    assert text.count("±1.10") == len([e for e in effects.table.effects if e.cell.metric != "ttft_after_connect"])
    assert "20261129-101500" in text


def test_checks_that_history_could_have_answered_are_counted():
    assert "448 of the exact checks could have been answered from the history" in render(*full())


def test_an_archived_block_is_listed_with_rule_request_counts_and_fix():
    reason = {
        "rule": "leak.local",
        "key": "chains/8k/0/cold",
        "detail": "10,976 local hits where 0 are allowed",
        "counts": {"done": 12, "total": 198},
        "exit_code": 4,
        "at": "2026-11-30T17:46:11Z",
        "fix": "a namespace per size",
    }
    run, verdict, effects = small()
    block = ExcludedBlock(position=2, arm="on", path="/machine/results/x/excluded/02-on-1", reason=reason)
    text = cells(render(replace(run, excluded=(block,)), verdict, effects), "findings")
    for word in ("leak.local", "chains/8k/0/cold", "10,976", "12", "198", "a namespace per size", "excluded/02-on-1"):
        assert word in text
    assert "/machine" not in text


def test_units_that_left_are_listed_with_their_reason():
    run, verdict, effects = small()
    unit = ExcludedUnit(
        pair=1, unit="chains/8k/0", rule="row.wrong", arm="on", block=2, key="chains/8k/0/cross", rows=10
    )
    left = replace(verdict, status="incomplete", excluded_units=(unit,), failures={"on": {"row.wrong": 1}})
    text = cells(render(run, left, effects), "findings")
    assert "chains/8k/0/cross" in text
    assert "the answer is wrong" in text


def test_three_arms_are_drawn_and_tabled_apart():
    page = render(*many_arms())
    assert "var(--arm-2)" in page
    assert re.search(r"native.*on", cells(page, "changes"), re.DOTALL)


@pytest.mark.parametrize("only", [(), (1,)])
def test_a_folder_without_a_pair_still_gives_a_page(only):
    page = render(*analysed(make_run(only=only)))
    assert 'class="verdict' in page
    assert '<section id="requests"' in page


def test_the_embedded_rows_are_the_stored_rows():
    run, verdict, effects = small()
    columns = {column["name"]: column for column in embedded(render(run, verdict, effects))["requests"]}
    stored = [value for block in run.blocks for value in block.requests.column("start_ns").to_pylist()]
    assert columns["start_ns"]["values"] == stored


def test_a_long_screening_says_what_the_page_left_out():
    run, verdict, effects = analysed(make_run(screening(order=("off", "on", "on", "off") * 10, concurrency=())))
    page = render(run, verdict, effects)
    assert "the first 2,000 of" not in page or "kvabba export" in page
    assert re.search(r"400 pairs of [\d,]+: the 0 with a finding come first in line", page)


def test_the_folder_is_named_without_the_machines_path():
    run = small()[0]
    assert (
        folder_label(replace(run, path="/home/somebody/kvabba/results/paper/20261130-1")) == "results/paper/20261130-1"
    )
    assert folder_label(replace(run, path="/tmp/elsewhere")) == "elsewhere"
