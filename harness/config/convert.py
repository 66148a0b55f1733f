"""From a draft without issues to the frozen `Screening`."""

from __future__ import annotations

from harness.config import schema
from harness.config.draft import Draft
from harness.model import screening as model


def convert(draft: Draft) -> model.Screening:
    """The screening, its digest still empty. ValueError where the draft has missing tables."""
    head, engine, arms, services = draft.head, draft.engine, draft.arms, draft.services
    request, workloads, checks = draft.request, draft.workloads, draft.checks
    if not (head and engine and arms and services is not None and request and workloads and checks):
        raise ValueError("a draft with issues cannot become a screening")
    return model.Screening(
        name=head.name,
        description=head.description,
        engine=_engine(engine),
        arms=tuple(_arm(name, table) for name, table in arms.items()),
        services=tuple(_service(name, table) for name, table in services.items()),
        factor=tuple(head.factor),
        order=tuple(head.order),
        baseline=head.baseline,
        seed=head.seed,
        request=_request(request),
        workloads=_workloads(workloads),
        checks=model.ChecksSpec(**checks.model_dump()),
        digest="",
        deadline_s=head.deadline_s,
    )


def _commands(table: schema.CommandsTable | None) -> model.Commands | None:
    if table is None:
        return None
    return model.Commands(start=tuple(table.start), stop=tuple(table.stop), status=tuple(table.status))


def _argv(argv: list[str] | None) -> tuple[str, ...] | None:
    return None if argv is None else tuple(argv)


def _engine(table: schema.EngineTable) -> model.EngineSpec:
    replicas = tuple(
        model.ReplicaSpec(name=r.name, url=r.url, argv=_argv(r.argv), commands=_commands(r.commands), env=dict(r.env))
        for r in table.replicas
    )
    plain = table.model_dump(exclude={"replicas", "void_log_patterns"})
    return model.EngineSpec(replicas=replicas, void_log_patterns=tuple(table.void_log_patterns), **plain)


def _service(name: str, table: schema.ServiceTable) -> model.ServiceSpec:
    plain = table.model_dump(exclude={"argv", "commands"})
    return model.ServiceSpec(name=name, argv=_argv(table.argv), commands=_commands(table.commands), **plain)


def _arm(name: str, table: schema.ArmTable) -> model.Arm:
    return model.Arm(
        name=name, reach=table.reach, args=tuple(table.args), env=dict(table.env), services=tuple(table.services)
    )


def _request(table: schema.RequestTable) -> model.RequestSpec:
    plain = table.model_dump(exclude={"thinking"})
    return model.RequestSpec(thinking=None if table.thinking == "unset" else table.thinking, **plain)


def _sizes(tables: list[schema.SizeTable]) -> tuple[model.Size, ...]:
    return tuple(model.Size(**table.model_dump()) for table in tables)


def _workloads(table: schema.WorkloadsTable) -> model.Workloads:
    return model.Workloads(
        chains=None if table.chains is None else _chains(table.chains),
        sessions=None if table.sessions is None else _sessions(table.sessions),
        generation=None if table.generation is None else _generation(table.generation),
        concurrency=None if table.concurrency is None else _concurrency(table.concurrency),
        warmup=model.WarmupSpec(**table.warmup.model_dump()),
    )


def _chains(table: schema.ChainsTable) -> model.ChainsSpec:
    return model.ChainsSpec(sizes=_sizes(table.sizes), chains=table.chains)


def _sessions(table: schema.SessionsTable) -> model.SessionsSpec:
    plain = table.model_dump(exclude={"sizes", "placements"})
    return model.SessionsSpec(sizes=_sizes(table.sizes), placements=tuple(table.placements), **plain)


def _generation(table: schema.GenerationTable) -> model.GenerationSpec:
    return model.GenerationSpec(sizes=_sizes(table.sizes), outputs=tuple(table.outputs))


def _concurrency(table: schema.ConcurrencyTable) -> model.ConcurrencySpec:
    return model.ConcurrencySpec(
        size=_sizes([table.size])[0],
        windows=tuple(table.windows),
        placements=tuple(table.placements),
        turns=table.turns,
        turn_tokens=table.turn_tokens,
        answer_form=table.answer_form,
    )
