from __future__ import annotations

from dataclasses import replace

import pytest

from harness.config import load
from harness.model.planned import Plan
from harness.model.screening import Screening
from harness.plan import schedule


@pytest.fixture(scope="session")
def paper() -> Screening:
    return load("paper")


@pytest.fixture(scope="session")
def paper_plan(paper: Screening) -> Plan:
    return schedule(paper)


@pytest.fixture(scope="session")
def reserve_plan(paper: Screening) -> Plan:
    """The paper's plan with reserve values, as every other screening has them."""
    return schedule(replace(paper, checks=replace(paper.checks, reserve_values=True)))
