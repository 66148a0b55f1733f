"""Tokenisation: the same ids as `tokenizers`, quickly, and back to the same bytes."""

import json
from pathlib import Path

import numpy as np
import pytest
import tokenizers

from harness.sim.chat_template import ChatTemplate, ChatTemplateError
from harness.sim.tokens import FallbackBackend, TiktokenBackend, Tokenizer, choose_backend

SIM = Path(__file__).parents[3] / "fixtures" / "tokenizers" / "sim"
TEXTS = [
    "",
    "plain words",
    "  leading\n\n\ttabs  and   runs \r\n",
    "def f(x):\n    return {'a': 1}  # it's 100%\n",
    "é ü 中文 😀 \u2028 \x85",
    "@value alpha_port = 938639\n@ask alpha_port",
    "<|im_start|>user\nhi<|im_end|>\n<|endoftext|><|im_start|>",
]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(SIM)


@pytest.mark.parametrize("text", TEXTS)
def test_ids_equal_those_of_the_tokenizers_package(tokenizer, text):
    reference = tokenizers.Tokenizer.from_file(str(SIM / "tokenizer.json"))
    assert tokenizer.encode(text).tolist() == reference.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("text", TEXTS)
def test_decoding_gives_the_bytes_back(tokenizer, text):
    assert tokenizer.decode_bytes(tokenizer.encode(text)) == text.encode()


def test_a_byte_level_file_runs_on_the_fast_backend():
    assert isinstance(choose_backend(SIM / "tokenizer.json"), TiktokenBackend)


def test_a_file_with_a_normalizer_runs_on_the_fallback(tmp_path):
    spec = json.loads((SIM / "tokenizer.json").read_text())
    spec["normalizer"] = {"type": "Lowercase"}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(spec))
    backend = choose_backend(path)
    assert isinstance(backend, FallbackBackend)
    assert backend.encode("ABC") == backend.encode("abc")


@pytest.mark.parametrize("text", TEXTS)
def test_encoding_within_a_bound_gives_the_same_ids(text):
    fresh = Tokenizer(SIM)
    assert fresh.encode_known(text, new=len(text)).tolist() == fresh.encode(text).tolist()


def test_a_text_with_more_new_characters_than_the_bound_is_not_encoded():
    fresh = Tokenizer(SIM)
    text = "<|im_start|>" + "some words that nobody has seen " * 40 + "<|im_end|>"
    assert fresh.encode_known(text, new=100) is None
    ids = fresh.encode(text)
    assert fresh.encode_known(text, new=0).tolist() == ids.tolist()


def test_a_text_in_the_shared_files_is_not_new(tmp_path):
    text = "<|im_start|>" + "words that the other replica has encoded " * 40 + "<|im_end|>"
    ids = Tokenizer(SIM, tmp_path).encode(text)
    assert Tokenizer(SIM, tmp_path).encode_known(text, new=0).tolist() == ids.tolist()


def test_a_segment_that_was_seen_is_not_encoded_again(tokenizer, monkeypatch):
    text = "a text of its own " * 50
    first = tokenizer.encode(f"<|im_start|>{text}<|im_end|>")
    monkeypatch.setattr(tokenizer.backend, "encode", lambda _: pytest.fail("encoded again"))
    assert tokenizer.encode(f"<|im_start|>{text}<|im_end|>").tolist() == first.tolist()


def test_a_second_process_reads_what_the_first_has_encoded(tmp_path, monkeypatch):
    text = "shared between replicas " * 2_000
    ids = Tokenizer(SIM, tmp_path).encode(text)
    other = Tokenizer(SIM, tmp_path)
    monkeypatch.setattr(other.backend, "encode", lambda _: pytest.fail("encoded again"))
    assert other.encode(text).tolist() == ids.tolist()


def test_an_unwritable_memo_folder_is_no_error(tmp_path):
    tokenizer = Tokenizer(SIM, tmp_path)
    for folder in tmp_path.iterdir():
        folder.rmdir()
    assert len(tokenizer.encode("no place to write " * 2_000)) > 0


def test_memoised_decoding_equals_plain_decoding(tokenizer):
    text = "some words that fill pieces " * 3_000
    ids = tokenizer.encode(text)
    assert tokenizer.decode_bytes(ids) == tokenizer.decode_bytes(ids) == text.encode()


def test_ids_outside_the_vocabulary_do_not_break_decoding(tokenizer):
    assert tokenizer.decode_bytes(np.array([-5, 10**6], dtype=np.int32))


def test_filler_words_are_single_lower_case_tokens(tokenizer):
    assert all(tokenizer.decode_bytes([i]).strip().isalpha() for i in tokenizer.words)


def test_a_chat_prompt_is_rendered_by_the_directorys_own_template():
    rendered = ChatTemplate(SIM).render([{"role": "user", "content": "hi"}])
    assert rendered == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


def test_without_a_generation_prompt_the_text_ends_after_the_message():
    rendered = ChatTemplate(SIM).render([{"role": "user", "content": "hi"}], generation_prompt=False)
    assert rendered.endswith("<|im_end|>\n")


def test_text_parts_are_joined():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert "a\nb" in ChatTemplate(SIM).render([{"role": "user", "content": parts}])


def test_content_that_is_no_text_is_refused():
    with pytest.raises(ChatTemplateError):
        ChatTemplate(SIM).render([{"role": "user", "content": [{"type": "image_url"}]}])


def test_a_template_that_raises_is_reported(tmp_path):
    (tmp_path / "chat_template.jinja").write_text("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(ChatTemplateError, match="roles must alternate"):
        ChatTemplate(tmp_path).render([{"role": "user", "content": "x"}])


def test_a_template_in_the_configuration_is_found(tmp_path):
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": "{{ bos_token }}!", "bos_token": "<s>"})
    )
    assert ChatTemplate(tmp_path).render([{"role": "user", "content": "x"}]) == "<s>!"


def test_a_directory_without_a_template_says_so(tmp_path):
    with pytest.raises(ChatTemplateError, match="no chat template"):
        ChatTemplate(tmp_path)
