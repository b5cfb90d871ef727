"""Tasks of lm-evaluation-harness as sets, against the real harness: prompts, log-probabilities, accuracy."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import harness_tasks
from conftest import missing, oodles
from oodles.contracts import PromptSet, Suite
from oodles.errors import DataError, MissingExtraError
from oodles.model.load import load_model, load_tokenizer, resolve_model
from oodles.model.scoring import predict, prepare_all
from oodles.suite import tasks
from oodles.suite.load import load_suite, pattern_for, pattern_of
from oodles.suite.patterns import render
from oodles.suite.sources import load_examples


@pytest.fixture(scope="session")
def harness() -> Any:
    try:
        import lm_eval
    except ImportError:
        missing("no lm-evaluation-harness: make build/oracles, and put it on PYTHONPATH")
    return lm_eval


@pytest.fixture
def local(tmp_path: Path, harness: Any) -> Suite:
    return load_suite(harness_tasks.write_suite(tmp_path / "suite"))


def prompts_of(suite: Suite, name: str) -> PromptSet:
    data = suite.test_sets[name]
    return render(pattern_for(suite, data, pattern_of(suite, "")), load_examples(suite, data), name)


@pytest.mark.slow
@pytest.mark.parametrize("fewshot", [0, 5])
@pytest.mark.parametrize("label", ["tiny-llama-untrained", "smollm2-135m-q4"])
def test_five_layouts_equal_the_harness(
    tmp_path: Path, harness: Any, tiny_model: Path, smollm2: Path, label: str, fewshot: int
) -> None:
    """Every context and continuation, every choice's log-probability to 1e-4, and both accuracies."""
    suite = load_suite(harness_tasks.write_suite(tmp_path, fewshot))
    files = {name: tmp_path / f"{name}.yaml" for name in harness_tasks.LAYOUTS}
    spec = resolve_model(label)
    model, tokenizer = load_model(spec).eval(), load_tokenizer(spec)
    told = harness_tasks.evaluate(model, tokenizer, files, fewshot)
    sets = [prompts_of(suite, name) for name in suite.test_sets]
    for prompts, plan in zip(sets, prepare_all(model, tokenizer, sets), strict=True):
        samples = sorted(told["samples"][prompts.name], key=lambda sample: sample["doc_id"])
        for prompt, sample in zip(prompts.prompts, samples, strict=True):
            asked = [tuple(pair) for pair in sample["arguments"]]
            assert [(c.context, c.continuation) for c in prompt.choices] == asked
        found = predict(model, plan, prompts)
        theirs = [[float(score) for score, _ in sample["filtered_resps"]] for sample in samples]
        for own, other in zip(found.scores, theirs, strict=True):
            assert own[: len(other)] == pytest.approx(other, abs=1e-4)
            assert np.isnan(own[len(other) :]).all()
        for metric in ("acc", "acc_norm"):
            assert found.right[metric].mean() == told["results"][prompts.name][f"{metric},none"]


@pytest.mark.slow
def test_long_contexts_lose_their_beginning_as_in_the_harness(tmp_path: Path, harness: Any, tiny_model: Path) -> None:
    spec = resolve_model("tiny-llama-untrained")
    model, tokenizer = load_model(spec).eval(), load_tokenizer(spec)
    model.config.max_position_embeddings = 64
    suite = load_suite(harness_tasks.write_suite(tmp_path, 5))
    told = harness_tasks.evaluate(model, tokenizer, {"like_piqa": tmp_path / "like_piqa.yaml"}, 5)
    prompts = prompts_of(suite, "like_piqa")
    (plan,) = prepare_all(model, tokenizer, [prompts])
    assert plan.shortened == len(prompts)
    samples = sorted(told["samples"]["like_piqa"], key=lambda sample: sample["doc_id"])
    theirs = [[float(score) for score, _ in sample["filtered_resps"]] for sample in samples]
    assert predict(model, plan, prompts).scores == pytest.approx(np.array(theirs), abs=1e-4)


@pytest.mark.slow
def test_a_fixed_seed_draws_the_same_examples(tmp_path: Path, harness: Any) -> None:
    path = harness_tasks.write_suite(tmp_path, 3)
    first = prompts_of(load_suite(path), "like_arc").hash
    tasks._made.cache_clear()
    assert prompts_of(load_suite(path), "like_arc").hash == first
    path.write_text(path.read_text().replace("fewshot = 3", "fewshot = 3, fewshot_seed = 7"))
    assert prompts_of(load_suite(path), "like_arc").hash != first


@pytest.mark.slow
def test_a_stored_task_needs_no_harness(
    tmp_path: Path, local: Suite, harness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(local.folder) / "local.toml"
    done = oodles("fetch", path, "--to", tmp_path / "data")
    assert done.returncode == 0, done.stderr
    before = {name: prompts_of(local, name) for name in local.test_sets}
    version = tasks.load_task(local, local.test_sets["like_arc"]).version
    tasks._made.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "lm_eval", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'oodles\[lm-eval\]'"):
        prompts_of(local, "like_arc")
    stored = load_suite(path, data=tmp_path / "data")
    assert {name: prompts_of(stored, name) for name in stored.test_sets} == before
    assert tasks.load_task(stored, stored.test_sets["like_arc"]).version == version == "1.5"
    # another number of examples in the prompts is another task
    other = replace(stored.test_sets["like_arc"], source=replace(stored.test_sets["like_arc"].source, fewshot=2))
    with pytest.raises(DataError, match="other examples in its prompts"):
        load_examples(stored, other)
    # a changed row is noticed
    file = tmp_path / "data" / "like_arc" / "eval.task.parquet"
    shutil.copyfile(tmp_path / "data" / "like_piqa" / "eval.task.parquet", file)
    with pytest.raises(DataError, match="holds another task"):
        load_examples(stored, stored.test_sets["like_arc"])


@pytest.mark.slow
def test_groups_are_one_set_with_a_slice_for_each_task(tmp_path: Path, harness: Any) -> None:
    harness_tasks.write_tasks(tmp_path)
    (tmp_path / "both.yaml").write_text("group: both\ntask: [like_piqa, like_arc]\n")
    (tmp_path / "g.toml").write_text(
        'schema = 1\nname = "g"\n[[test_sets]]\nname = "both"\nsource = { lm_eval = "both.yaml" }\n'
    )
    suite = load_suite(tmp_path / "g.toml")
    examples = load_examples(suite, suite.test_sets["both"])
    assert [e.slices["task"] for e in examples] == ["like_piqa"] * 6 + ["like_arc"] * 6
    assert examples[0].id == "like_piqa/0"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("output_type: multiple_choice", "output_type: generate_until", "generates text (generate_until); expected"),
        ("doc_to_target: label", 'doc_to_target: "{{[0, 1]}}"', "2 choices are right; expected one"),
        ("doc_to_target: label", "doc_to_target: nobody", "no right choice among 2"),
        ("doc_to_target: label", "doc_to_target: 7", "cannot load task"),
        ("metric_list:", "process_results: !function docs.gap_gold\nmetric_list:", "computes its own scores"),
    ],
)  # fmt: skip
def test_what_is_no_multiple_choice_is_refused(tmp_path: Path, harness: Any, old: str, new: str, message: str) -> None:
    path = harness_tasks.write_suite(tmp_path)
    file = tmp_path / "like_piqa.yaml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    suite = load_suite(path)
    with pytest.raises(DataError) as caught:
        load_examples(suite, suite.test_sets["like_piqa"])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
