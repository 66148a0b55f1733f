"""Checks that need more than one field. Each takes the draft, skips what is missing, and adds every issue it finds."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

from harness.config.armchecks import arm_issues
from harness.config.capacity import capacity_issues
from harness.config.draft import Draft
from harness.config.issues import did_you_mean, repeated
from harness.config.sizechecks import size_issues
from harness.model.errors import Issue


def crosscheck(draft: Draft) -> list[Issue]:
    """Every issue between the fields of a draft."""
    checks: tuple[Callable[[Draft], Iterator[Issue]], ...] = (
        arm_issues,
        _replicas,
        _addresses,
        _engine,
        _request,
        size_issues,
        capacity_issues,
    )
    return [issue for run in checks for issue in run(draft)]


def _replicas(draft: Draft) -> Iterator[Issue]:
    engine = draft.engine
    if engine is None:
        return
    for index, name in repeated([replica.name for replica in engine.replicas]):
        yield Issue(path=f"engine.replicas[{index}].name", message=f"{name!r} is used twice", allowed="distinct names")
    for index, replica in enumerate(engine.replicas):
        where = f"engine.replicas[{index}]"
        if replica.argv is not None and replica.commands is not None:
            yield Issue(path=where, message="has both argv and commands", allowed="one of them")
        if engine.kind == "remote" and replica.argv is not None:
            yield Issue(
                path=f"{where}.argv", message="a remote replica is no local process", allowed="commands, or neither"
            )
    for name in engine.options.get("cpus", {}):
        names = [replica.name for replica in engine.replicas] + list(draft.services or {})
        if name not in names:
            message = f"{name!r} is neither a replica nor a service{did_you_mean(name, names)}"
            yield Issue(path=f"engine.options.cpus.{name}", message=message, allowed=", ".join(names))


def _addresses(draft: Draft) -> Iterator[Issue]:
    engine = draft.engine
    if engine is None:
        return
    places = [(f"engine.replicas[{i}].url", replica.url, replica.commands) for i, replica in enumerate(engine.replicas)]
    places += [(f"services.{name}.url", table.url, table.commands) for name, table in (draft.services or {}).items()]
    taken: dict[tuple[str, int], str] = {}
    for path, url, commands in places:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            yield Issue(path=path, message=f"{url!r}: {error}", allowed="http://HOST:PORT")
            continue
        if parts.scheme not in ("http", "https") or not host or port is None or parts.path not in ("", "/"):
            yield Issue(
                path=path, message=f"{url!r} is no base URL", allowed="http://HOST:PORT, port 0 = chosen at the start"
            )
            continue
        if not _is_loopback(host) and commands is None and engine.kind != "remote":
            yield Issue(
                path=path, message=f"{host} is another host", allowed="127.0.0.1, or commands that start it there"
            )
        if port and (host, port) in taken:
            yield Issue(path=path, message=f"{host}:{port} is taken by {taken[host, port]}", allowed="distinct ports")
        taken[host, port] = path


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _engine(draft: Draft) -> Iterator[Issue]:
    engine = draft.engine
    if engine is None:
        return
    for key in ("model", "model_dir"):
        if "@" in (getattr(engine, key) or ""):
            yield Issue(
                path=f"engine.{key}",
                message="holds an @, which the shared tier uses in its keys",
                allowed="a path without @",
            )
    chunk = engine.chunk_size
    if chunk is not None and chunk % engine.block_size:
        message = f"{chunk} is no multiple of block_size {engine.block_size}"
        yield Issue(
            path="engine.chunk_size",
            message=message,
            allowed=f"such as {engine.block_size * max(1, chunk // engine.block_size)}",
        )
    sharing = [name for name, arm in (draft.arms or {}).items() if arm.reach != "none"]
    if chunk is None and sharing:
        yield Issue(
            path="engine.chunk_size",
            message=f"is missing, but arm {sharing[0]!r} keeps a tier",
            allowed="tokens of one chunk",
        )
    kinds = {"sim-cache": ("sim",), "lmcache": ("vllm", "vllm-cpu", "remote")}
    for name, service in (draft.services or {}).items():
        fitting = kinds.get(service.kind)
        if fitting and engine.kind not in fitting and service.argv is None:
            message = f"{service.kind!r} does not serve engine kind {engine.kind!r}"
            yield Issue(path=f"services.{name}.kind", message=message, allowed=f"engine kind {' or '.join(fitting)}")


def _request(draft: Draft) -> Iterator[Issue]:
    request, checks = draft.request, draft.checks
    if request is None:
        return
    if request.min_tokens is not None and request.min_tokens > request.max_tokens:
        yield Issue(
            path="request.min_tokens",
            message=f"{request.min_tokens} > max_tokens",
            allowed=f"at most {request.max_tokens}",
        )
    if request.response_format and request.api != "chat":
        yield Issue(path="request.response_format", message="exists for the chat API only", allowed='api = "chat"')
    windows = draft.workloads.concurrency if draft.workloads else None
    if request.response_format and windows is not None and windows.answer_form == "array":
        message = "its schema asks for an object, concurrency for an array"
        yield Issue(path="request.response_format", message=message, allowed='concurrency.answer_form = "object"')
    if request.thinking == "unset" or request.api == "completions" or checks is None:
        return
    if checks.answers == "exact" and request.ignore_eos:
        yield Issue(
            path="request.ignore_eos",
            message="text after the answer makes it unparsable",
            allowed='checks.answers = "none"',
        )
