"""Common prefixes against brute force; the fast tokenizer against the reference; exact lengths of any size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.fixtures.conversation import Conversation, Recipe
from harness.fixtures.fast import FastTokenizer
from harness.fixtures.filling import Filler
from harness.fixtures.planting import answer_text, expected_answer, plant, seeded
from harness.fixtures.prefixes import common_prefix, common_prefix_with, largest_foreign
from harness.fixtures.reference import ReferenceTokenizer, token_counter
from harness.fixtures.wording import filler_lines
from harness.model.planned import PlannedPayload

REFERENCE = ReferenceTokenizer(Path(__file__).parents[2] / "fixtures/tokenizers/sim")
FAST = FastTokenizer(REFERENCE)
COUNT = token_counter(REFERENCE.directory)
FILLER = Filler(FAST, "marker", 7)

few_tokens = st.lists(st.integers(0, 2), max_size=12)
heads = st.dictionaries(
    st.sampled_from("abcdef"),
    st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=6), min_size=1, max_size=3),
    min_size=1,
)


def array(values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.int32)


def brute(first: list[int], second: list[int]) -> int:
    shared = 0
    while shared < min(len(first), len(second)) and first[shared] == second[shared]:
        shared += 1
    return shared


@given(few_tokens, few_tokens)
def test_common_prefix_is_the_brute_force_one(first: list[int], second: list[int]) -> None:
    assert common_prefix(array(first), array(second)) == brute(first, second)


@given(few_tokens, few_tokens, few_tokens)
def test_a_prompt_with_its_answer_is_one_sequence(first: list[int], tail: list[int], other: list[int]) -> None:
    assert common_prefix_with(array(first), array(tail), array(other)) == brute(first + tail, other)


@given(heads)
@settings(max_examples=300)
def test_the_largest_foreign_prefix_is_the_brute_force_one(groups: dict[str, list[list[int]]]) -> None:
    found = largest_foreign({name: [array(head) for head in group] for name, group in groups.items()})
    for name, group in groups.items():
        others = [(other, head) for other, lists in groups.items() if other != name for head in lists]
        best = max((brute(mine, theirs) for mine in group for _, theirs in others), default=0)
        assert found[name][0] == best
        if best:
            partner = found[name][1]
            assert max(brute(mine, theirs) for mine in group for theirs in groups[partner]) == best


@given(st.text(max_size=400))
@settings(max_examples=200, deadline=None)
def test_fast_ids_are_the_references_for_any_text(text: str) -> None:
    assert np.array_equal(FAST.encode(text), REFERENCE.encode(text))


@given(st.integers(0, 2**32), st.integers(1, 60))
@settings(max_examples=50, deadline=None)
def test_lines_are_additive_in_tokens(seed: int, count: int) -> None:
    lines = filler_lines(seeded("n", seed, "lines"), count, "marker")
    whole, upto = FAST.encode_lines(lines)
    each = [REFERENCE.encode(line) for line in lines]
    assert np.array_equal(whole, np.concatenate(each))
    assert upto.tolist() == np.cumsum([len(ids) for ids in each]).tolist()


@given(st.integers(400, 3000), st.integers(150, 1200), st.integers(2, 4), st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_any_conversation_has_exact_first_and_later_lengths(first: int, step: int, turns: int, seed: int) -> None:
    recipe = Recipe(tokenizer=FAST, filler=FILLER, seed=seed, tolerance=0, template_kwargs={}, system=None)
    space = f"{seed:032x}"
    conversation = Conversation(recipe=recipe, namespace=space, values=plant([space], seed, "marker")[space])
    for turn in range(turns):
        planned = PlannedPayload(
            payload_id=f"p1/x/turn-{turn + 1}",
            pair=1,
            namespace=space,
            workload="sessions",
            size="x",
            nominal_tokens=first,
            turn=turn,
            turn_tokens=step,
            max_tokens=64,
            forced_tokens=None,
            asks=(0, 1, 2),
            answer_in_history=turn > 0,
        )
        built = conversation.turn(planned)
        assert len(built.ids) == len(REFERENCE.encode(built.text)) == first + turn * step


@given(st.lists(st.uuids().map(lambda value: value.hex), min_size=1, max_size=60), st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_planted_values_never_repeat_across_namespaces(spaces: list[str], seed: int) -> None:
    for style, digits in (("marker", 6), ("prose", 5)):
        values = [value.value for group in plant(spaces, seed, style).values() for value in group]
        assert len(values) == len(set(values))
        assert {len(str(value)) for value in values} == {digits}


@given(st.lists(st.uuids().map(lambda value: value.hex), min_size=2, max_size=40), st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_answers_to_the_same_question_have_the_same_number_of_tokens(spaces: list[str], seed: int) -> None:
    planted = plant(spaces, seed, "marker", COUNT).values()
    for asks in ((0, 1, 2), (3,), (4,)):
        for form in ("object", "array"):
            answers = [answer_text(expected_answer(values, asks) or {}, "marker", form) for values in planted]
            assert len({COUNT(answer) for answer in answers}) == 1


@given(st.lists(st.uuids().map(lambda value: value.hex), min_size=1, max_size=40), st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_a_tokenizer_that_splits_digits_changes_no_planted_value(spaces: list[str], seed: int) -> None:
    def count(text: str) -> int:
        return sum(character.isdigit() for character in text) + 2

    assert plant(spaces, seed, "prose", count) == plant(spaces, seed, "prose")
