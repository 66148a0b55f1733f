"""Checks of order, arms, services and the declared factor against one another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from harness.config import schema
from harness.config.draft import Draft
from harness.config.issues import did_you_mean
from harness.model.errors import Issue
from harness.plan.order import is_aa, order_problem


def arm_issues(draft: Draft) -> Iterator[Issue]:
    """Every issue between order, baseline, arms, services and factor."""
    for check in (_order, _baseline, _services, _factor):
        yield from check(draft)


def arm_differences(arms: dict[str, schema.ArmTable], used: Sequence[str]) -> dict[str, list[str]]:
    """The dotted fields in which the used arms differ, each with the arms that differ from the first."""
    tables = {name: arms[name] for name in dict.fromkeys(used) if name in arms}
    fields = ["reach", "args", "services", *sorted({f"env.{key}" for table in tables.values() for key in table.env})]
    found: dict[str, list[str]] = {}
    for path in fields:
        values = {name: _field(table, path) for name, table in tables.items()}
        first = next(iter(values.values()), None)
        if others := [name for name, value in values.items() if value != first]:
            found[path] = others
    return found


def _field(table: schema.ArmTable, path: str) -> object:
    return table.env.get(path.removeprefix("env.")) if path.startswith("env.") else getattr(table, path)


def _order(draft: Draft) -> Iterator[Issue]:
    head, arms = draft.head, draft.arms
    if head is None or arms is None:
        return
    known = ", ".join(arms)
    for index, name in enumerate(head.order):
        if name not in arms:
            message = f"{name!r} is not an arm{did_you_mean(name, list(arms))}"
            yield Issue(path=f"order[{index}]", message=message, allowed=known)
    problem = order_problem(head.order, counterbalanced=head.order_kind == "counterbalanced")
    if problem:
        allowed = 'such as off on on off; or declare order_kind = "pairs"' if "palindrome" in problem else None
        yield Issue(path="order", message=problem, allowed=allowed)
    for name in arms:
        if name not in head.order and not is_aa(head.order):
            yield Issue(
                path=f"arms.{name}", message="is declared, but the order never runs it", allowed="use or remove it"
            )


def _baseline(draft: Draft) -> Iterator[Issue]:
    head, arms = draft.head, draft.arms
    if head is None or arms is None:
        return
    if head.baseline not in head.order:
        yield Issue(
            path="baseline",
            message=f"{head.baseline!r} is not in the order",
            allowed=", ".join(dict.fromkeys(head.order)),
        )
    if is_aa(head.order):
        return
    for name in dict.fromkeys(head.order):
        if name not in arms:
            continue
        none = arms[name].reach == "none"
        if none != (name == head.baseline):
            message = f"reach {arms[name].reach!r}" + (
                " is the baseline's alone" if none else " cannot be the baseline's"
            )
            allowed = "exactly one arm, the baseline, has reach none"
            yield Issue(path=f"arms.{name}.reach", message=message, allowed=allowed)


def _services(draft: Draft) -> Iterator[Issue]:
    arms, services = draft.arms, draft.services
    if arms is None or services is None:
        return
    for arm, table in arms.items():
        for index, name in enumerate(table.services):
            if name not in services:
                message = f"{name!r} is not a service{did_you_mean(name, list(services))}"
                yield Issue(
                    path=f"arms.{arm}.services[{index}]",
                    message=message,
                    allowed=", ".join(services) or "none is declared",
                )
    wanted = {name for table in arms.values() for name in table.services}
    for name, service in services.items():
        if name not in wanted:
            yield Issue(path=f"services.{name}", message="is declared, but no arm uses it", allowed="use or remove it")
        if service.kind == "command" and service.argv is None and service.commands is None:
            yield Issue(
                path=f"services.{name}", message='kind "command" says not how it is started', allowed="argv or commands"
            )
        if service.argv is not None and service.commands is not None:
            yield Issue(path=f"services.{name}", message="has both argv and commands", allowed="one of them")


def _factor(draft: Draft) -> Iterator[Issue]:
    head, arms = draft.head, draft.arms
    if head is None or arms is None:
        return
    differing = arm_differences(arms, head.order)
    for path, others in differing.items():
        if path not in head.factor:
            message = f"differs from the first arm's, but {path!r} is not declared as a factor"
            where = f"arms.{others[0]}.{path}"
            yield Issue(path=where, message=message, allowed=f"factor holds {', '.join(differing)}")
    for index, path in enumerate(head.factor):
        if path not in ("reach", "args", "services") and not path.startswith("env."):
            yield Issue(
                path=f"factor[{index}]",
                message=f"{path!r} is no field of an arm",
                allowed="reach, args, services, env.NAME",
            )
        elif path not in differing:
            yield Issue(
                path=f"factor[{index}]", message=f"{path!r} is equal in all arms", allowed="only fields that differ"
            )
    for path, count in Counter(head.factor).items():
        if count > 1:
            yield Issue(path="factor", message=f"{path!r} is named {count} times", allowed="each once")
