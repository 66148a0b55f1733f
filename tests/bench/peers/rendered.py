"""The bytes of a streamed answer, rendered before anything is timed. Standard library only: see `emitter.py`."""

from __future__ import annotations

from dataclasses import dataclass

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_IDENTITY = b'"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1700000000,"model":"m"'
MODELS = b'{"object":"list","data":[{"id":"sim","object":"model","created":1,"owned_by":"x","max_model_len":1000000}]}'


def _event(data: bytes) -> bytes:
    whole = b"data: " + data + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(whole), whole)


def _chunk(piece: bytes, finish: bytes = b"null") -> bytes:
    choice = b'"choices":[{"index":0,%b,"logprobs":null,"finish_reason":%b}]' % (piece, finish)
    return _event(b"{%b,%b}" % (_IDENTITY, choice))


@dataclass(frozen=True, slots=True)
class Rendered:
    """The bytes of one API."""

    first: bytes
    content: bytes
    last: bytes

    def tail(self, events: int) -> bytes:
        usage = b'"usage":{"prompt_tokens":64,"total_tokens":%d,"completion_tokens":%d}' % (events + 64, events)
        return _event(b'{%b,"choices":[],%b}' % (_IDENTITY, usage)) + _event(b"[DONE]") + b"0\r\n\r\n"


_WORD = _chunk(b'"delta":{"content":" word"}')
CHAT = Rendered(
    first=_chunk(b'"delta":{"role":"assistant","content":""}') + _WORD,
    content=_WORD,
    last=_chunk(b'"delta":{"content":" word"}', b'"length"'),
)
_TEXT = _chunk(b'"text":" word"')
COMPLETION = Rendered(first=_TEXT, content=_TEXT, last=_chunk(b'"text":" word"', b'"length"'))
