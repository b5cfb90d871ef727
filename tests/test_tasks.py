"""Tasks of lm-evaluation-harness as sets, against the real harness: prompts, log-probabilities, accuracy."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import harness_tasks
from conftest import missing, oodles
from hub_server import HubServer, Repository
from oodles.contracts import PromptSet, Suite
from oodles.errors import ConfigError, DataError, MissingExtraError
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


ODD = [
    ("the cat", ["sat", "sat down", "sat down on", "ran"]),  # one begins as another
    ("yes or no ", ["yes ", "yes", "no  "]),  # spaces at ends
    ("<s> a start of its own", ["same", "same", "other"]),  # twice the same
    ("naïve 東京 🙂", ["é", "e\u0301", "🙂🙂", "東"]),
    ("many", [f"option {number}" for number in range(30)]),
    ("river " * 200, ["stone", "a stone"]),  # too long
]


def tokenizer_with_start(*, spaced: bool) -> Any:
    """As Llama's (`spaced`: a space before every text) and Gemma's are made: a start token before every text."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    made.normalizer = normalizers.Replace(" ", "▁")
    if spaced:
        made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), made.normalizer])
    made.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    words = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    texts = [f"Q: {question}\nA: {' '.join(choices)}" for question, choices in ODD[:3]] * 9
    made.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=400, special_tokens=words))
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


@pytest.mark.slow
@pytest.mark.parametrize("spaced", [True, False])
@pytest.mark.parametrize("text", ["Q: {{q}}\\nA:", "{{q}}", ""])
def test_odd_choices_and_start_tokens_equal_the_harness(tmp_path: Path, harness: Any, spaced: bool, text: str) -> None:
    """A tokenizer that writes a start token before every text: the harness keeps it, once, and so do we."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    rows = [{"q": q, "choices": c, "label": number % len(c)} for number, (q, c) in enumerate(ODD)]
    file = tmp_path / "odd.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    body = f'doc_to_text: "{text}"\ndoc_to_target: label\ndoc_to_choice: choices'
    (tmp_path / "odd.yaml").write_text(harness_tasks.YAML.format(name="odd", body=body, train=file, test=file))
    source = '[[test_sets]]\nname = "odd"\nsource = { lm_eval = "odd.yaml" }\n'
    (tmp_path / "s.toml").write_text(f'schema = 1\nname = "s"\n{source}')
    tokenizer = tokenizer_with_start(spaced=spaced)
    assert tokenizer("a")["input_ids"][0] == tokenizer.bos_token_id
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=128, initializer_range=0.3, **sizes)
    model = LlamaForCausalLM(config).eval()
    told = harness_tasks.evaluate(model, tokenizer, {"odd": tmp_path / "odd.yaml"}, 0)
    prompts = prompts_of(load_suite(tmp_path / "s.toml"), "odd")
    (plan,) = prepare_all(model, tokenizer, [prompts])
    found = predict(model, plan, prompts)
    for own, sample in zip(found.scores, sorted(told["samples"]["odd"], key=lambda s: s["doc_id"]), strict=True):
        theirs = [float(score) for score, _ in sample["filtered_resps"]]
        assert own[: len(theirs)] == pytest.approx(theirs, abs=1e-4)
    for metric in ("acc", "acc_norm"):
        assert found.right[metric].mean() == told["results"]["odd"][f"{metric},none"]


@pytest.mark.slow
@pytest.mark.parametrize("fewshot", [0, 5])
def test_the_unconditional_baseline_equals_the_harness(
    tmp_path: Path, harness: Any, tiny_model: Path, fewshot: int
) -> None:
    """acc_mutual_info, and both log-probabilities that it is the difference of."""
    layouts = ("like_hellaswag", "like_piqa", "like_arc", "like_boolq")
    path = harness_tasks.write_suite(tmp_path, fewshot, **dict.fromkeys(layouts, 'score = "minus_baseline"\n'))
    for name in layouts:
        file = tmp_path / f"{name}.yaml"
        listed = "metric_list:\n  - {metric: acc_mutual_info, aggregation: mean, higher_is_better: true}"
        file.write_text(file.read_text().replace("metric_list:", listed))
    suite = load_suite(path)
    spec = resolve_model("tiny-llama-untrained")
    model, tokenizer = load_model(spec).eval(), load_tokenizer(spec)
    told = harness_tasks.evaluate(model, tokenizer, {name: tmp_path / f"{name}.yaml" for name in layouts}, fewshot)
    sets = [prompts_of(suite, name) for name in layouts]
    for prompts, plan in zip(sets, prepare_all(model, tokenizer, sets), strict=True):
        found = predict(model, plan, prompts)
        samples = sorted(told["samples"][prompts.name], key=lambda sample: sample["doc_id"])
        assert found.base is not None
        for own, base, sample in zip(found.scores, found.base, samples, strict=True):
            theirs = [float(score) for score, _ in sample["filtered_resps"]]
            count = len(theirs) // 2
            assert own[:count] == pytest.approx(theirs[:count], abs=1e-4)
            assert base[:count] == pytest.approx(theirs[count:], abs=1e-4)
        assert found.correct.mean() == told["results"][prompts.name]["acc_mutual_info,none"]


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
    # so are the rows of another YAML of that name
    with path.with_name("like_winogrande.yaml").open("a") as file:
        file.write("description: Fill the gap.\n")
    with pytest.raises(DataError, match=r"was not made from .*like_winogrande.yaml as it is now"):
        load_examples(stored, stored.test_sets["like_winogrande"])
    path.with_name("like_winogrande.yaml").unlink()  # without it, the copy is all there is
    assert load_examples(stored, stored.test_sets["like_winogrande"])
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
def test_a_group_and_its_slices_have_the_harness_numbers(tmp_path: Path, harness: Any, tiny_model: Path) -> None:
    files = harness_tasks.write_tasks(tmp_path)
    (tmp_path / "like_arc_test.jsonl").write_text((tmp_path / "like_arc_train.jsonl").read_text() * 2)  # another size
    group = "group: both\ntask: [like_piqa, like_arc]\nmetadata: {version: 2.0}\n"
    group += "aggregate_metric_list: [{metric: acc, weight_by_size: true}]\n"
    (tmp_path / "both.yaml").write_text(group)
    (tmp_path / "g.toml").write_text(
        'schema = 1\nname = "g"\n[[test_sets]]\nname = "both"\nsource = { lm_eval = "both.yaml" }\n'
    )
    sets = ("both", "both/like_piqa", "both/like_arc")
    done = oodles(
        *("score", "--model", "tiny-llama-untrained", "--suite", tmp_path / "g.toml", "--json"),
        *(part for name in sets for part in ("--test-set", name)),
    )
    assert done.returncode == 0, done.stderr
    own = json.loads(done.stdout)
    spec = resolve_model("tiny-llama-untrained")
    told = harness_tasks.evaluate(
        load_model(spec).eval(), load_tokenizer(spec), {name: files[name] for name in ("like_piqa", "like_arc")}, 0
    )
    theirs = {name: told["results"][name]["acc,none"] for name in ("like_piqa", "like_arc")}
    assert {name: own["results"][f"both/{name}"]["acc,none"] for name in theirs} == pytest.approx(theirs)
    pooled = (6 * theirs["like_piqa"] + 12 * theirs["like_arc"]) / 18
    assert own["results"]["both"]["acc,none"] == pytest.approx(pooled)
    assert own["versions"]["both"] == 2.0
    # the mean of unequal tasks is another number than the accuracy over their examples
    (tmp_path / "both.yaml").write_text(group.replace("weight_by_size: true", "weight_by_size: false"))
    suite = load_suite(tmp_path / "g.toml")
    with pytest.raises(DataError, match=r"'both' averages acc over its tasks \(weight_by_size: false\)"):
        load_examples(suite, suite.test_sets["both"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("output_type: multiple_choice", "output_type: generate_until", "generates text (generate_until); expected"),
        ("doc_to_target: label", 'doc_to_target: "{{[0, 1]}}"', "2 choices are right; expected one"),
        ("doc_to_target: label", "doc_to_target: nobody", "the target 'nobody' is none of the 2 choices; expected an"),
        ("doc_to_target: label", 'doc_to_target: "{{0 - 1}}"', "a split without labels cannot be scored"),
        ("doc_to_choice: ", "doc_to_choice: goal #", "choices 'carry eggs safely', expected a list"),
        ("[sol1, sol2]", "[sol1, sol2 if label == 0 else none]", "None], expected a list of at least two"),
        ("[sol1, sol2]", "[sol1, sol2 if label == 0 else '']", "''], expected a list of at least two"),
        ("[sol1, sol2]", "[sol1]", "expected a list of at least two texts, none empty"),
        ("aggregation: mean", "aggregation: !function docs.gap_gold", "aggregates acc in its own way"),
        ("doc_to_target: label", "doc_to_target: 7", "cannot load task"),
        ("metric_list:", "process_results: !function docs.gap_gold\nmetric_list:", "computes its own scores"),
    ],
)  # fmt: skip
def test_what_is_no_multiple_choice_is_refused(tmp_path: Path, harness: Any, old: str, new: str, message: str) -> None:
    path = harness_tasks.write_suite(tmp_path)
    file = tmp_path / "like_piqa.yaml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new, 1))
    suite = load_suite(path)
    with pytest.raises(DataError) as caught:
        load_examples(suite, suite.test_sets["like_piqa"])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("split", ["train", "validation"])
def test_no_prompt_holds_its_own_question_with_the_answer(tmp_path: Path, harness: Any, split: str) -> None:
    """The harness leaves a document out of its examples only in the split that it evaluates."""
    path = harness_tasks.write_suite(tmp_path)
    file = tmp_path / "like_piqa.yaml"
    file.write_text(
        file.read_text().replace("training_split: train", f"{split.replace('train', 'training')}_split: train")
    )
    file.write_text(file.read_text() + "fewshot_split: train\n")
    path.write_text(
        'schema = 1\nname = "own"\n[[test_sets]]\nname = "own"\n'
        f'source = {{ lm_eval = "like_piqa.yaml", fewshot = 5, split = "{split}" }}\n'
    )
    suite = load_suite(path)
    examples = load_examples(suite, suite.test_sets["own"])
    assert len(examples) == 6  # 5 examples before each: without care, most prompts would hold their own answer
    for example in examples:
        assert example.rendered[0].context.count(example.fields["question"]) == 1
        assert example.rendered[0].context.count("Question:") == 6


@pytest.mark.slow
def test_what_a_suite_asks_of_a_task_in_vain_is_refused(tmp_path: Path, harness: Any) -> None:
    path = harness_tasks.write_suite(tmp_path, 5)
    file = tmp_path / "like_piqa.yaml"
    file.write_text(file.read_text() + "num_fewshot: 0\n")
    suite = load_suite(path)
    with pytest.raises(
        DataError, match="'like_piqa' says num_fewshot: 0, which the harness never changes; leave fewshot"
    ):
        load_examples(suite, suite.test_sets["like_piqa"])
    path = harness_tasks.write_suite(tmp_path, like_winogrande='score = "minus_baseline"\n')
    with pytest.raises(DataError, match="like_winogrande: a baseline decides nothing"):
        prompts_of(load_suite(path), "like_winogrande")
    for line, message in (
        ('item = "gaol"', "item is 'gaol', expected"),
        ('gold = "text"', "gold does not go with lm_eval"),
    ):
        path = harness_tasks.write_suite(tmp_path, like_piqa=f"{line}\n")
        with pytest.raises(ConfigError, match=message):
            load_suite(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("gsm8k", "task 'gsm8k' generates text (generate_until); expected multiple_choice"),  # before its data
        ("wikitext", "task 'wikitext' measures perplexity (loglikelihood_rolling); expected multiple_choice"),
        ("hellaswagg", "did you mean 'hellaswag'?"),
        ("like_piqa", "a task of yours is named by its file, e.g. my_task.yaml"),
    ],
)  # fmt: skip
def test_tasks_of_the_harness_by_name(tmp_path: Path, harness: Any, named: str, message: str) -> None:
    text = f'schema = 1\nname = "n"\n[[test_sets]]\nname = "n"\nsource = {{ lm_eval = "{named}" }}\n'
    (tmp_path / "n.toml").write_text(text)
    suite = load_suite(tmp_path / "n.toml")
    with pytest.raises(DataError) as caught:
        load_examples(suite, suite.test_sets["n"])
    assert message in str(caught.value)


# the suite commonsense


def test_commonsense_names_what_to_mind_of_every_set() -> None:
    suite = load_suite("commonsense")
    assert len(suite.test_sets) >= 7
    assert set(suite.train_sets) <= set(suite.test_sets)
    for data in suite.test_sets.values():
        assert data.caveats, data.name
        assert data.citation, data.name


@pytest.mark.slow
def test_the_harness_has_every_task_of_commonsense(harness: Any) -> None:
    from lm_eval.tasks._yaml_loader import load_yaml

    manager = tasks._all_tasks()
    for data in load_suite("commonsense").test_sets.values():
        entry = manager.task_index[str(data.source.lm_eval)]
        config = load_yaml(entry.yaml_path)
        assert config["output_type"] == "multiple_choice", data.name
        listed = [metric["metric"] for metric in config.get("metric_list", [])]
        assert ("acc_norm" in listed) == (data.score == "per_character"), data.name


@pytest.fixture
def hub(tmp_path: Path, harness: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders of the hub's names in the current folder stand for its repositories; the rows are made up."""
    monkeypatch.setenv("OODLES_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "datasets"))
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "datasets")
    monkeypatch.chdir(tmp_path)
    tasks._made.cache_clear()
    return tmp_path


@pytest.mark.slow
def test_commonsense_on_a_local_copy_in_the_hubs_layout(hub: Path, tiny_model: Path) -> None:
    """Every set is rendered, audited and scored; nothing is said of choices that give nothing away."""
    harness_tasks.write_hub(hub)
    suite = load_suite("commonsense")
    sets = {name: load_examples(suite, data) for name, data in suite.test_sets.items()}
    assert {len(rows) for rows in sets.values()} == {48}
    assert {name: len(rows[0].choices) for name, rows in sets.items()} == {
        **{"hellaswag": 4, "piqa": 2, "arc_easy": 4, "arc_challenge": 4, "openbookqa": 4},
        **{"winogrande": 2, "social_iqa": 3, "commonsense_qa": 5, "copa": 2},
    }
    assert sets["copa"][0].rendered[0].context.endswith(" because")
    assert sets["winogrande"][0].rendered[0].continuation == " was there."
    assert len({e.slices["source_id"] for e in sets["hellaswag"]}) > 1
    assert load_examples(suite, suite.train_sets["hellaswag"]) != sets["hellaswag"]
    assert tasks.locate_task(suite, suite.test_sets["piqa"]) is not None  # by name: in the cache
    assert _findings() == {"task-unpinned": set(suite.test_sets)}
    done = oodles("score", "--model", "tiny-llama-untrained", "--suite", "commonsense", "--limit", "8", "--out", "out")
    assert done.returncode == 0, done.stderr
    for name in suite.test_sets:
        assert f"|{name}" in done.stdout


@pytest.mark.slow
def test_the_audit_of_commonsense_finds_each_planted_fault_where_it_is(hub: Path) -> None:
    harness_tasks.write_hub(hub, hellaswag="longest", piqa="first", arc_easy="same", siqa="longest", super_glue="first")
    assert _findings() == {
        "choice-length": {"hellaswag", "social_iqa"},
        "choice-position": {"piqa", "copa"},
        "choice-same": {"arc_easy"},
        "task-unpinned": set(load_suite("commonsense").test_sets),
    }


def _findings() -> dict[str, set[str]]:
    """Where the audit of commonsense says something of choices or revisions."""
    done = oodles("check", "--suite", "commonsense", "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, set[str]] = {}
    for finding in json.loads(done.stdout)["findings"]:
        if finding["code"].startswith(("choice-", "task-")):
            found.setdefault(finding["code"], set()).update(finding["where"].split(", "))
    return found


@pytest.mark.slow
def test_the_data_of_a_task_are_pinned_by_revision_copy_or_rows(tmp_path: Path, harness: Any) -> None:
    """The hub is simulated on loopback; `datasets` and the harness are real."""
    old, new = (_piqa_repository(tmp_path / name, fault) for name, fault in (("old", ""), ("new", "first")))
    repository = Repository(new, older=old)
    commits = {name: repository.references[tag] for name, tag in (("new", "main"), ("old", "v0"))}
    text = 'schema = 1\nname = "pinned"\n[[test_sets]]\nname = "piqa"\nsource = { lm_eval = "piqa"REVISION }\n'
    with HubServer({"baber/piqa": repository}) as server:

        def call(*arguments: object, asked: str = "", rows: str = "") -> Any:
            (tmp_path / "s.toml").write_text(
                rows + text.replace("REVISION", f', revision = "{asked}"' if asked else "")
            )
            home = {"HF_HOME": str(tmp_path / "home"), "OODLES_CACHE": str(tmp_path / "cache")}
            return oodles(
                *arguments, cwd=tmp_path, HF_ENDPOINT=server.url, HF_HUB_OFFLINE="0", HF_DATASETS_OFFLINE="0", **home
            )

        def stored(folder: str) -> tasks.Task:
            suite = load_suite(tmp_path / "s.toml", data=tmp_path / folder)
            return tasks.load_task(suite, suite.test_sets["piqa"])

        floating = call("check", "--suite", "s.toml", "--json")
        assert floating.returncode == 0, floating.stderr
        (note,) = [f for f in json.loads(floating.stdout)["findings"] if f["code"] == "task-unpinned"]
        assert f"piqa {commits['new']}" in note["text"]
        assert call("fetch", "s.toml", "--to", "today").returncode == 0
        today = stored("today")
        assert today.revision == commits["new"]
        kept = call("check", "--suite", "s.toml", "--data", "today", "--json")
        assert "task-unpinned" not in kept.stdout
        done = call("fetch", "s.toml", "--to", "then", asked=commits["old"])
        assert done.returncode == 0, done.stderr
        assert stored("then").revision == commits["old"]
        assert {e.answer for e in stored("then").examples} == {0, 1} != {e.answer for e in today.examples}
        assert "task-unpinned" not in call("check", "--suite", "s.toml", "--json", asked=commits["old"]).stdout
        # hashes of the rows: the older rows are not those that were pinned
        assert call("check", "--suite", "s.toml", "--pin", "s.rows").returncode == 0
        pinned = call("check", "--suite", "s.toml", "--json", rows='rows = "s.rows"\n')
        assert "task-unpinned" not in pinned.stdout
        other = call("check", "--suite", "s.toml", "--json", rows='rows = "s.rows"\n', asked=commits["old"])
        assert {"label-differs", "rows-differ"} & {f["code"] for f in json.loads(other.stdout)["findings"]}


def _piqa_repository(folder: Path, fault: str) -> dict[str, bytes]:
    harness_tasks.write_hub(folder, 12, piqa=fault)
    return {f"data/{file.name}": file.read_bytes() for file in (folder / "baber" / "piqa").iterdir()}
