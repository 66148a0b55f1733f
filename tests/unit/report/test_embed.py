import base64
import hashlib
import json

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from harness.report.embed import EXACT_IN_JAVASCRIPT, columns_from_rows, columns_of, neutral, policy, script_json


@given(st.text())
def test_embedded_json_never_holds_a_character_that_could_end_its_element(text):
    embedded = str(script_json({"answer": text}))
    assert not set("<>&\u2028\u2029") & set(embedded)


@given(st.dictionaries(st.text(), st.text() | st.none() | st.booleans() | st.integers(-(2**53), 2**53)))
def test_embedded_json_says_the_same_after_escaping(value):
    assert json.loads(str(script_json(value))) == value


def test_the_policy_allows_exactly_the_hashed_style_and_script():
    digest = base64.b64encode(hashlib.sha256(b"a{}").digest()).decode()
    assert policy(style="a{}", script="1") == "; ".join(
        (
            "default-src 'none'",
            f"style-src 'sha256-{digest}'",
            f"script-src 'sha256-{base64.b64encode(hashlib.sha256(b'1').digest()).decode()}'",
            "base-uri 'none'",
            "form-action 'none'",
        ),
    )


def test_a_whole_number_beyond_javascript_is_embedded_as_text():
    table = pa.table({"start_ns": pa.array([EXACT_IN_JAVASCRIPT + 1, 5], pa.int64())})
    assert columns_of(table) == [{"name": "start_ns", "values": ["9007199254740993", 5]}]


def test_a_column_of_one_value_is_embedded_once():
    assert columns_of(pa.table({"run": ["r", "r", "r"]})) == [{"name": "run", "constant": "r", "rows": 3}]


def test_true_and_one_are_not_taken_for_the_same_value():
    assert columns_from_rows([{"a": True}, {"a": 1}]) == [{"name": "a", "values": [True, 1]}]


def test_free_text_that_a_spreadsheet_would_run_carries_an_apostrophe():
    table = pa.table({"answer": ["=1+1", "fine", None], "key": ["=a", "b", "c"]})
    assert columns_of(table)[0]["values"] == ["'=1+1", "fine", None]
    assert columns_of(table)[1]["values"] == ["=a", "b", "c"]


@given(st.text(min_size=1))
def test_neutral_text_never_starts_like_a_formula(text):
    assert neutral(text)[0] not in "=+-@\t\r"
