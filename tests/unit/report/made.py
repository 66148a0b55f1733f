"""Analysed made-up screenings for the tests of the report, made once."""

from dataclasses import replace
from functools import cache

from synthetic import edit, make_run, paper, screening

from harness.analysis import Floor, analyse, audit

HOSTILE = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>\u2028=1+1 {{ 7 * 7 }}"


def analysed(run):
    verdict = audit(run)
    return run, verdict, analyse(run, verdict)


@cache
def small():
    """Two block pairs, valid."""
    return analysed(make_run())


@cache
def full():
    """The paper's 768 requests, valid, with a noise floor beside every effect."""
    run, verdict, effects = analysed(make_run(paper()))
    floor = Floor(pct=1.1, aa_pairs=4, for_pairs=2, largest_pct=0.9, fingerprint="f" * 64, run="20261129-101500")
    table = replace(effects.table, effects=tuple(replace(effect, floor=floor) for effect in effects.table.effects))
    return run, verdict, replace(effects, table=table)


@cache
def hostile():
    """A leak voids the screening, and one answer tries to become markup, script and formula."""
    run = edit(make_run(), 2, "chains/8k/0/cold", local_hits=16, answer=HOSTILE)
    return analysed(replace(run, header={**run.header, "options": {"unvalidated": True}}))


@cache
def many_arms():
    return analysed(make_run(screening(order=("off", "native", "on", "on", "native", "off"))))


@cache
def scaled():
    """Simulated time runs at a twentieth."""
    return analysed(make_run(screening(time_scale=0.05)))
