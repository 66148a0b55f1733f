"""Every rule that can void a block, exclude a unit or warn, by name: what it means, what it costs, what to do.

A finding names its rule; `kvabba rules ID` and `docs/rules.md` (generated from here) show this text.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.model.errors import ExitCode
from harness.model.findings import Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule: `exit_code` is what a run ends with when the rule stops it (OK where it does not)."""

    id: str
    severity: Severity
    exit_code: ExitCode
    title: str
    meaning: str
    next_step: str


def _rule(
    id: str,  # noqa: A002 - a rule's id is its name everywhere else too
    severity: Severity,
    exit_code: ExitCode,
    title: str,
    meaning: str,
    next_step: str,
) -> Rule:
    return Rule(id=id, severity=severity, exit_code=exit_code, title=title, meaning=meaning, next_step=next_step)


_V: Severity = "void"
_I: Severity = "incomplete"
_W: Severity = "warning"
_LEAK, _VOID, _FIND = ExitCode.LEAK, ExitCode.VOID, ExitCode.FINDINGS

RULES: dict[str, Rule] = {
    rule.id: rule
    for rule in (
        # --- while measuring: leaks ------------------------------------------------------------------------------
        _rule("leak.local", _V, _LEAK, "more local hits than this request can have",
              "The replica's own prefix cache served tokens that no earlier request of this namespace put there.",
              "Look for a shared template prefix, a reused namespace, or a replica that was not restarted."),
        _rule("leak.external", _V, _LEAK, "more external hits than this request can have",
              "A shared or offloaded tier served tokens that it must not hold for this namespace and arm.",
              "Check that the cache service was restarted, that the salt is honoured, and that OFF has no connector."),
        _rule("leak.pool_lookup", _V, _LEAK, "the cache service found tokens for a cold request",
              "The pool's own lookup counter rose for a request whose namespace is new.",
              "Check for other users of the pool and for a pool that survived a restart."),
        # --- while measuring: treatment --------------------------------------------------------------------------
        _rule("treatment.external_short", _V, _VOID, "fewer external hits than the arm promises",
              "The arm shares its cache, but the shareable aligned prefix was not (wholly) found there.",
              "Check the connector's log, eviction, pool size and that stores were drained before the request."),
        _rule("treatment.local_short", _V, _VOID, "fewer local hits than this request must have",
              "The replica's own prefix cache did not serve what an earlier request put there.",
              "Check that prefix caching is on and that the replica's cache is larger than one unit."),
        _rule("treatment.not_loaded", _V, _VOID, "external hits without loaded chunks",
              "The engine counted external hits, but the cache service loaded nothing: the hit is not real.",
              "Look for a failed load in the engine's log; the answer may come from garbage."),
        _rule("treatment.zero_exposure", _V, _VOID, "the treatment was never applied",
              "An arm that shares its cache shows no external hit in the whole block.",
              "Check the connector and that all replicas use the same hash seed, model path and salt."),
        _rule("window.external_short", _W, ExitCode.OK, "a concurrency window hit less than every store could give",
              "Stores end after the response, so a session's next turn may overtake them; the window shows what users would see.",
              "Nothing to do; compare the windows' external hits across blocks."),
        # --- while measuring: invariants --------------------------------------------------------------------------
        _rule("invariant.queries", _V, _VOID, "prefix-cache queries differ from the prompt tokens",
              "Δ local queries must equal usage.prompt_tokens: otherwise somebody else's traffic is in the window.",
              "Put other traffic in maintenance; run one API process; check for retries inside the engine."),
        _rule("invariant.prompt_tokens", _V, _VOID, "prompt tokens differ between usage and counter",
              "The response's usage and the replica's own prompt counter disagree.",
              "Check for parallel traffic and for more than one API process."),
        _rule("invariant.planned_tokens", _V, _VOID, "prompt tokens differ from the plan",
              "The engine counted another number of tokens than the fixtures were built for.",
              "Check that tokenizer and chat template are the engine's own, and that no token is added twice."),
        _rule("invariant.local_range", _V, _VOID, "local hits outside what a block cache can give",
              "Local hits must be a multiple of the block size and at most floor((n-1)/block)·block.",
              "Check the declared block size against cache_config_info."),
        _rule("invariant.external_queries", _V, _VOID, "external queries outside their definition",
              "With a connector, Δ external queries is n − local hits (or n, by engine version), and hits ≤ queries.",
              "Check the engine's version and its `external_queries` setting in the declaration."),
        _rule("invariant.sources", _V, _VOID, "computed + local + external differ from the prompt",
              "The three sources of prompt tokens must add up to n.",
              "Look for a failed load or a preemption in the engine's log."),
        _rule("invariant.cached_tokens", _V, _VOID, "usage.cached_tokens differs from local + external hits",
              "Response and counters disagree about what was cached.",
              "Start the engine with prompt token details; look for foreign traffic."),
        _rule("invariant.preemption", _V, _VOID, "a preemption happened in the window",
              "A preempted request computes its prompt twice; its time is not a measurement.",
              "Give the replica more cache or send smaller windows."),
        _rule("invariant.chunk_arithmetic", _V, _VOID, "external hits do not follow from the pool's lookup",
              "H_ext must be max(0, c − H_local), less one where c = n, with c the pool's lookup hit.",
              "Check the declared chunk size and the pool's version."),
        _rule("invariant.idle_replica", _V, _VOID, "a replica that was not addressed worked",
              "Counters of another replica moved during a single-request window: foreign traffic or misrouting.",
              "Address replicas directly, never through a balancer; stop other clients."),
        _rule("counter.reset", _V, _VOID, "a counter went backwards",
              "A process restarted or its metrics were reset inside a window.",
              "See the process log; the block must run on one process from start to end."),
        _rule("counter.missing", _V, _VOID, "a required counter is missing",
              "A series the arm needs is not exposed; absent is not zero.",
              "Check the engine's version and that its metrics are not disabled."),
        _rule("counter.lag", _V, _VOID, "counters did not settle",
              "The counters had not caught up with the finished request when the barrier gave up.",
              "Raise the barrier's time-out or check the engine's metrics loop."),
        _rule("pool.eviction", _V, _VOID, "the pool evicted chunks", "The pool is too small for the block's working set.",
              "Raise the pool's size: eviction begins at its watermark, 80 % full."),
        _rule("pool.allocation_failure", _V, _VOID, "the pool failed to allocate", "A store was dropped.",
              "Raise the pool's size."),
        _rule("pool.dropped_events", _V, _VOID, "the pool dropped events", "Its own counters are not complete.",
              "Lower the load or raise the event queue."),
        _rule("pool.drain_timeout", _V, _VOID, "stores did not drain", "Write or read locks were still held when the barrier gave up.",
              "Check the pool's log and whether it still runs."),
        # --- while measuring: processes ---------------------------------------------------------------------------
        _rule("process.changed", _V, _VOID, "a replica or service is another process than at the start",
              "Fingerprint (pid, start time, version, argv) changed inside the block.",
              "See the process log: it may have crashed and been restarted from outside."),
        _rule("process.died", _V, _VOID, "a replica or service died", "The process ended inside the block.",
              "See the log tail in the archived block."),
        _rule("process.log_pattern", _V, _VOID, "a log line says the measurement is not valid",
              "The engine or the pool logged a line that is declared as voiding.", "Read the line in the archived log."),
        _rule("capacity.changed", _V, _VOID, "cache capacity differs between blocks",
              "Number of cache blocks and block size must be equal in all blocks.",
              "Free the device before each block; look for processes that were left over."),
        _rule("isolation.salt_ignored", _V, _VOID, "the same text under another salt was warm",
              "The isolation canary found hits: some cache ignores the namespace.",
              "Do not use this connector for paired measurements, or isolate by text alone and say so."),
        _rule("answer.foreign", _V, _VOID, "the answer belongs to another namespace",
              "A value planted in another namespace came back: state of another request was used.",
              "Stop using this cache; run `kvabba validate`."),
        _rule("answer.transfer_suspect", _V, _VOID, "transferred state gave a wrong answer",
              "Wrong after a transfer, right when computed or reused locally.", "Stop using this cache; run `kvabba validate`."),
        # --- rows that leave the estimate --------------------------------------------------------------------------
        _rule("row.failed", _I, _FIND, "the request failed", "HTTP, stream contract, error under 200, or time-out.",
              "See failure_kind and failure_detail of the row."),
        _rule("row.wrong", _I, _FIND, "the answer is wrong", "A planted value was not returned as planted.",
              "Run `kvabba validate` to tell model, drift and transfer apart."),
        _rule("row.unparsable", _I, _FIND, "the answer is not the JSON asked for", "No value can be read from it.",
              "Declare a response format or a model that can answer."),
        _rule("row.drift", _I, _FIND, "numeric drift candidate", "Wrong in the same way on local reuse and on transfer.",
              "Use float32 or a batch-invariant kernel; see `kvabba validate`."),
        _rule("row.forced_length", _I, _FIND, "another number of output tokens than forced",
              "ignore_eos / min_tokens were not honoured.", "Check the engine's support for both."),
        _rule("row.client_limited", _I, _FIND, "the client, not the server, limited this row",
              "Loop lag, a late send, CPU steal, or a slow reader exceeded its threshold.",
              "Free the client's core, or run again: a busy host can pause an idle machine. See the row's health columns."),
        _rule("row.sim_missed", _I, _FIND, "the simulator missed its own deadline", "The simulated time is not what was configured.",
              "Use a quieter machine, run again, or declare a larger time scale."),
        _rule("row.no_content", _I, _FIND, "a completed stream without content", "TTFT does not exist; it is null, not 0.",
              "Raise min_tokens or check the stop conditions."),
        _rule("unit.partner_excluded", _I, _FIND, "the partner unit left the estimate",
              "Units leave in pairs, so that no arm is compared on other prompts.", "See the partner's finding."),
        # --- the audit of a stored folder --------------------------------------------------------------------------
        _rule("audit.digest", _V, _FIND, "a stored file is not the one the manifest names", "SHA-256 or size differ.",
              "Restore the folder from its archive; results that were edited are not evidence."),
        _rule("audit.file_missing", _V, _FIND, "a file the manifest names is missing", "The folder is not whole.",
              "Restore the folder from its archive."),
        _rule("audit.no_manifest", _V, _FIND, "a block without a manifest", "The block was never committed.",
              "Rerun the pair: `kvabba run --resume`."),
        _rule("audit.schema", _V, _FIND, "columns or types are not the schema's", "The file was written by something else.",
              "Rewrite it with the project's own writer."),
        _rule("audit.null_key", _V, _FIND, "a row without a key", "It cannot be paired.", "Restore the folder."),
        _rule("audit.duplicate_row", _V, _FIND, "a key occurs twice in a block", "One of them is not a measurement of the plan.",
              "Restore the folder."),
        _rule("audit.row_missing", _V, _FIND, "a planned request has no row", "Rows were removed or never written.",
              "Restore the folder."),
        _rule("audit.row_extra", _V, _FIND, "a row that the plan does not know", "It belongs to another plan.", "Restore the folder."),
        _rule("audit.sha_mismatch", _V, _FIND, "partners sent different bytes", "SHA-256 of the bodies differ.",
              "Fixtures must be built once per pair."),
        _rule("audit.replica_mismatch", _V, _FIND, "partners went to different replicas", "Placement must be equal in both arms.",
              "Restore the folder."),
        _rule("audit.arm_label", _V, _FIND, "arm labels contradict the order or the counters",
              "The block's rows, manifest and declared order name different arms.", "Restore the folder."),
        _rule("audit.unpaired", _V, _FIND, "a block without its partner", "A pair needs both arms.", "Rerun the pair."),
        _rule("audit.plan_mismatch", _V, _FIND, "a row says something else than the plan",
              "Role, unit, size, check, body or order of a stored row differ from the plan that the declaration gives.",
              "Restore the folder; a plan is never taken from the rows."),
        _rule("audit.expectation", _V, _FIND, "a stored expectation does not follow from plan and payloads",
              "The allowed hits of a row are not what the rules give for its body and arm.", "Restore the folder."),
        _rule("audit.derived", _V, _FIND, "a derived column does not follow from its sources",
              "A duration, count or order of stamps contradicts the stamps, or the row contradicts the counters table.",
              "Restore the folder."),
        _rule("audit.verdict", _V, _FIND, "a stored output verdict does not follow from the stored answer",
              "Judging the answer again gives another verdict.", "Restore the folder."),
        _rule("audit.not_rechecked", "info", ExitCode.OK, "a part of the audit had no input",
              "Tables that were not loaded (counters of large folders) cannot be checked again.",
              "Audit a single block, or read the folder with its counters."),
        _rule("audit.block_missing", _I, _FIND, "a planned block has not been run", "Its pair cannot enter the estimate yet.",
              "Run the rest: `kvabba run --resume`."),
        _rule("audit.settings", _V, _FIND, "declarations differ between blocks", "Model settings and declaration digest must be equal.",
              "Start a new screening."),
        _rule("audit.block_replaced", _V, _FIND, "a block is not the one the screening recorded",
              "The screening's log of block manifests does not contain this manifest, or the manifest is of another run.",
              "Restore the folder."),
        _rule("audit.arithmetic", _V, _FIND, "rows in ≠ paired + excluded", "Something was dropped silently.",
              "This is a fault of the harness: report it with the folder."),
        _rule("audit.failure_rates", _I, _FIND, "failure rates differ between arms", "Survivors of unequal failures are not comparable.",
              "Look at failures by reason and arm."),
        _rule("run.excluded_block", _W, ExitCode.OK, "an excluded block is archived in this screening",
              "A rule voided a block; it stays in the folder with its reason.", "See excluded/."),
        _rule("run.superseded_block", _W, ExitCode.OK, "a half-done pair was superseded", "A run was interrupted and resumed.", "See superseded/."),
        _rule("run.gap_exceeded", _W, ExitCode.OK, "the drain outlasted the declared idle gap",
              "An arm that is given time to store is not the same treatment.", "Raise gap_s so that it covers the drain."),
    )
}  # fmt: skip


def rule(rule_id: str) -> Rule:
    """The rule of that id; KeyError for an unknown one."""
    return RULES[rule_id]
