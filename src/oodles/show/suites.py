"""Suites and audits in the terminal: what a reader needs first, in tables that fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from oodles.audit.audit import Audit
from oodles.audit.checks import LISTED, Finding
from oodles.audit.facts import SetFacts, TokenFacts
from oodles.contracts import Suite, describe_text

STYLE = {"error": "bold red", "warning": "yellow", "note": ""}


def show_suite(suite: Suite, sets: Sequence[dict[str, Any]], console: Console) -> None:
    """A suite: patterns, sets, caveats."""
    _line(console, f"{suite.name}: {suite.description}")
    for pattern in suite.patterns.values():
        _line(console, f"pattern {pattern.name}: {describe_text(pattern.text)!r} answers {list(pattern.answers)}")
    baseline = any("baseline" in s for s in sets)
    columns = ["set", "kind", "examples", "labels", "dropped", "chance", "tags", "description", "licence"]
    rows = []
    for row in sets:
        cells = [str(row[c]) for c in ("set", "kind", "examples", "labels", "dropped")]
        cells += [f"{row['chance']:.3f}" if row["chance"] else "-", ", ".join(row["tags"]), row["description"]]
        cells.append(row["licence"])
        rows.append(cells + ([f"{row['baseline']:.2f}" if row.get("baseline") else "-"] if baseline else []))
    _table(console, [*columns, *(["hypothesis-only"] if baseline else [])], rows)
    away = [s["set"] for s in sets if not s["here"]]
    if away:
        _line(console, f"\ndata not available, showing the expected numbers: {', '.join(dict.fromkeys(away))}")
        _line(console, "fetch them: oodles fetch, with the same suite; or pass a folder with copies: --data DIR")
    caveats = [(s["set"], c) for s in sets if s["kind"] == "test" for c in s["caveats"]]
    if caveats:
        _line(console, "\ncaveats")
        for name, text in caveats:
            _line(console, f"  {name}: {text}")


def show_audit(audit: Audit, errors: Sequence[Finding], about: dict[str, Any], console: Console) -> None:
    """An audit: what would be run, the sets, two prompts of each, then the findings with the gravest last."""
    if about:
        _line(console, f"study {about['study']}: suite {about['suite']}, {len(about['runs'])} runs")
        runs = [[r["run"], r["run_id"], " ".join(map(str, r["steps"]))] for r in about["runs"]]
        _table(console, ["run", "id", "steps evaluated"], runs[:20])
        if len(runs) > 20:
            _line(console, f"... and {len(runs) - 20} more")
        for caveat in about["caveats"]:
            _line(console, f"caveat: {caveat}")
    _table(console, ["set", "kind", "n", "chance", "hypothesis-only", "tokens", "hash", "from"], _set_rows(audit))
    for set_facts in audit.sets:
        _show_prompts(set_facts, console)
    for severity in ("note", "warning", "error"):
        findings = [f for f in audit.findings if f.severity == severity]
        if findings:
            _line(console, f"\n{severity}s")
            for finding in findings:
                _show_finding(finding, console, allowed=severity == "error" and finding not in errors)
    if not any(_token_facts(facts) for facts in audit.sets):
        _line(console, "\nno tokenizer: answers, lengths and tokens were not checked (--model says whose)")
    counts = audit.counts()
    totals = ", ".join(f"{n} {severity}{'' if n == 1 else 's'}" for severity, n in counts.items())
    waved = counts["error"] - len(errors)
    _line(console, f"\n{totals}" + (f" ({waved} allowed)" if waved else ""))


def _set_rows(audit: Audit) -> list[list[str]]:
    rows = []
    for facts in audit.sets:
        entries = _token_facts(facts)
        tokens = f"{entries[0].mean_tokens:.0f} mean, {entries[0].max_tokens} max" if entries else "-"
        shallow = next((f"{reached:.3f}" for reached in facts.shallow if reached is not None), "-")
        origin = "/".join(facts.origin.split("/")[-2:]) + (f" @{facts.revision[:8]}" if facts.revision else "")
        rows.append(
            [facts.name, facts.kind, f"{facts.n:,}", f"{facts.chance:.3f}", shallow, tokens, facts.hash, origin]
        )
    return rows


def _token_facts(facts: SetFacts) -> list[TokenFacts]:
    return [
        entry.tokens for by_model in facts.rendered.values() for entry in by_model.values() if entry.tokens is not None
    ]


def _show_prompts(facts: SetFacts, console: Console) -> None:
    for pattern, by_model in facts.rendered.items():
        for model, entry in by_model.items():
            head = ", ".join(filter(None, [f"pattern {pattern}", model]))
            _line(console, f"\n{facts.name} ({head}): {entry.n:,} prompts, hash {entry.hash}")
            for shown in entry.tokens.shown if entry.tokens else entry.shown:
                _line(console, f"  {_clip(shown.text)!r} -> {shown.answer!r}")
                if shown.tokens is not None:
                    tokens = list(shown.tokens)
                    ends = tokens if len(tokens) <= 16 else [*tokens[:6], "...", *tokens[-9:]]
                    _line(console, f"    {' '.join(ends)} -> {' '.join(shown.answer_tokens or ())}")


def _show_finding(finding: Finding, console: Console, *, allowed: bool) -> None:
    text = Text(f"  {finding.code}", style=STYLE[finding.severity])
    text.append(f"  {finding.where}: {finding.text}" + (" (allowed)" if allowed else ""), style="default")
    console.print(text, soft_wrap=True)
    if finding.severity == "note":
        return
    for item in finding.items[:LISTED]:
        _line(console, f"      {item}")
    if len(finding.items) > LISTED:
        _line(console, f"      ... and {len(finding.items) - LISTED} more (--json lists all)")


def _clip(text: str, most: int = 400) -> str:
    return text if len(text) <= most else f"{text[: most // 2]} ... {text[-most // 2 :]}"


def _line(console: Console, text: str) -> None:
    console.print(Text(text), soft_wrap=True)


def _table(console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)
