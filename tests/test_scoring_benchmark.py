"""The benchmark of scoring: its sample, what it counts, its baselines, and the figures that were kept."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import missing

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import scoring as bench  # noqa: E402
from benchmarks.baselines import dynamic, study  # noqa: E402

from oodles.model.load import load_model, load_tokenizer, resolve_model  # noqa: E402
from oodles.model.scoring import score  # noqa: E402
from oodles.suite.load import load_suite  # noqa: E402
from oodles.suite.sources import load_examples  # noqa: E402

TEXTS = [
    "A man sleeps on a bench in the park. Question: A man is asleep. Yes or No?",
    "A man sleeps on a bench in the park. Question: A man is running. Yes or No?",
    "It rains. Question: It is wet. Yes or No?",
    "The doctor near the lawyer slept. Question: The lawyer slept. Yes or No?",
    "Stones fell. " * 40 + "Question: Did stones fall? Yes or No?",  # over 128 tokens
    *(f"Number {n} stands alone. Question: It has company. Yes or No?" for n in range(30)),  # a second batch
]
ANSWERS = (" Yes", " No")


# the sample


@pytest.fixture(scope="module")
def sets(smollm2_tokenizer: Any, real_data: Path) -> list[bench.TestSet]:
    return bench.read_sets(load_suite("nli"), smollm2_tokenizer)


@pytest.mark.parametrize("size", [bench.SIZE, bench.QUICK_SIZE])
def test_the_sample_is_like_all_prompts(sets: list[bench.TestSet], size: int):
    seed, sample = bench.find_sample(sets, size)
    assert (seed, [s.prompts for s in sample]) == (seed, [s.prompts for s in bench.find_sample(sets, size)[1]])
    total = sum(len(s.tokens) for s in sets)
    assert total == 57_346
    for whole, part in zip(sets, sample, strict=True):
        assert len(part.tokens) == pytest.approx(size * len(whole.tokens) / total, abs=1)
        assert len(part.prompts.prompts) == len(part.tokens)
    assert bench.shared_share(sets) == pytest.approx(0.234, abs=0.001)
    assert bench.shared_share(sample) == pytest.approx(bench.shared_share(sets), abs=0.01)
    assert bench.tokens_per_prompt(sample) == pytest.approx(bench.tokens_per_prompt(sets), rel=0.01)


def test_a_drawn_premise_brings_all_its_prompts(sets: list[bench.TestSet]):
    suite = load_suite("nli")
    for one, kept in zip(sets, bench.draw(sets, bench.SIZE, 3), strict=True):
        premises = [e.fields["premise"] for e in load_examples(suite, suite.test_sets[one.prompts.name])]
        drawn = {premises[i] for i in kept}
        assert kept == [i for i, premise in enumerate(premises) if premise in drawn]


def test_different_seeds_draw_differently(sets: list[bench.TestSet]):
    assert bench.draw(sets, 240, 0) == bench.draw(sets, 240, 0) != bench.draw(sets, 240, 1)


# what is counted


def test_distinct_tokens_are_the_nodes_of_the_prefix_tree():
    prompts = [(1, 2, 3), (1, 2, 4, 5), (9,), (1, 2, 3), (1, 2)]
    assert bench.distinct_tokens(prompts) == len({ids[:n] for ids in prompts for n in range(1, len(ids) + 1)}) == 6
    assert bench.distinct_tokens([]) == 0


def test_multiply_adds_by_hand():
    shape = bench.Shape(linear=100, head=50, hidden=7, attention=3)
    # two rows of 4: 8 tokens x (100 + 50), 2 x 16 pairs x 3; one row of 2: 2 x 150, 4 pairs x 3
    assert bench.count_padded(shape, [(2, 4), (1, 2)]) == 8 * 150 + 32 * 3 + 2 * 150 + 4 * 3
    assert bench.count_padded(shape, [(2, 4)], causal=True) == 8 * 150 + 2 * 10 * 3
    # 1-2-3 sees 1 + 2 + 3, then 4-5 behind 1-2 see 3 + 4: 5 tokens, 13 pairs, two prompts x two answers
    assert bench.count_distinct(shape, [[(1, 2, 3), (1, 2, 4, 5)]]) == 5 * 100 + 13 * 3 + 2 * 2 * 7
    # another set shares nothing with the first
    both = bench.count_distinct(shape, [[(1, 2)], [(1, 2)]])
    assert both == 2 * bench.count_distinct(shape, [[(1, 2)]])


def test_padded_shapes_by_hand():
    assert bench.padded_shapes([5] * 33, 128) == [(32, 128), (1, 128)]
    assert bench.padded_shapes([5, 200, 7], 128) == [(3, 200)]
    assert bench.padded_shapes([5, 9, 7], 1) == [(3, 9)]


def test_ratios_and_agreement_by_hand():
    found = bench.ratios({"oodles": [1.0, 2.0, 1.0], "study": [6.0, 8.0, 5.0]})
    assert found == {"ratio_study": 6.0, "range_study": [4.0, 6.0]}
    ours = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    theirs = np.array([[1.0, 0.001], [0.0, 1.0], [0.0, 0.0001]])  # the last is no clear winner
    same = bench.agreement(ours, theirs)
    assert same == {"max_margin_difference": 1e-3, "equal_winners": 1.0, "clear_margins": 2, "prompts": 3}
    assert bench.agreement(ours, theirs[:, ::-1])["equal_winners"] == 0.0


def test_turns_cover_the_sample_and_scale_its_seconds():
    parts = [bench.Part([0, 1], 10, 0), bench.Part([2], 30, 1), bench.Part([3], 20, 2)]
    contender = bench.Contender("x", parts, lambda works: (np.repeat([[w, w] for w in works], [2, 1, 1], axis=0), 1.0))
    scores = np.full((4, 2), np.nan)
    assert contender.take_turn(0, 1, scores) == 1.0
    assert scores[:, 0].tolist() == [0, 0, 1, 2]
    contender = bench.Contender("x", parts, lambda _: (np.zeros((3, 2)), 1.0))
    assert contender.take_turn(2, 2, scores) == pytest.approx(60 / 30)  # parts 0 and 2


# who is compared


@pytest.fixture(scope="module")
def tiny(tiny_model: Path) -> tuple[Any, Any]:
    spec = resolve_model(str(tiny_model))
    return load_model(spec).eval(), load_tokenizer(spec)


@pytest.mark.parametrize("module", [study, dynamic])
def test_baselines_agree_with_ours(tiny: tuple[Any, Any], module: Any):
    model, tokenizer = tiny
    answers = [tokenizer(a, add_special_tokens=False)["input_ids"][0] for a in ANSWERS]
    batches = module.make_batches(tokenizer, TEXTS)
    assert [len(indices) for indices, _, _ in batches] == [32, 3]
    theirs = module.score_batches(model, batches, answers)
    same = bench.agreement(score(model, tokenizer, TEXTS, ANSWERS), theirs)
    assert same["max_margin_difference"] < 1e-4
    assert same["equal_winners"] == 1.0


def test_the_study_pads_to_128_and_cuts_nothing(tiny: tuple[Any, Any]):
    _, tokenizer = tiny
    (_, first, mask), (_, second, _) = study.make_batches(tokenizer, TEXTS)
    longest = max(len(ids) for ids in tokenizer(TEXTS)["input_ids"])
    assert longest > 128
    assert first.shape == (32, longest)
    assert second.shape == (3, 128)
    assert mask.sum(dim=1).tolist() == [len(ids) for ids in tokenizer(TEXTS[:32])["input_ids"]]


@pytest.mark.long  # lm_eval is installed aside, by `make bench`
def test_the_harness_agrees_with_ours(tiny: tuple[Any, Any]):
    pytest.importorskip("lm_eval", reason="lm_eval is installed by `make bench`, into build/oracles")
    from benchmarks.baselines import harness

    model, tokenizer = tiny
    found = harness.load(model, tokenizer, [*TEXTS, TEXTS[0]], ANSWERS)
    theirs = np.full((len(TEXTS) + 1, 2), np.nan)
    for turn in (0, 1):
        batches = found.batches[turn::2]
        theirs[[i for indices, _, _ in batches for i in indices]] = found.score_batches([b[2] for b in batches])[0]
    assert bench.agreement(score(model, tokenizer, [*TEXTS, TEXTS[0]], ANSWERS), theirs)["max_margin_difference"] < 1e-4
    assert sum(rows for _, (rows, _), _ in found.batches) == len(TEXTS)  # the repeated prompt is scored once


def test_no_baseline_imports_oodles():
    for path in (ROOT / "benchmarks" / "baselines").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.split(".")[0] == "oodles" for name in names), path


def test_the_shape_of_a_model(tiny: tuple[Any, Any]):
    model, _ = tiny
    shape = bench.Shape.of(model)
    embedding = model.get_input_embeddings().weight.numel()
    assert shape.head == embedding
    matrices = sum(p.numel() for name, p in model.named_parameters() if p.dim() == 2 and "embed" not in name)
    assert shape.linear == matrices - (0 if model.config.tie_word_embeddings else shape.head)


# what was kept


def results() -> dict[str, Any]:
    found = json.loads((ROOT / "benchmarks" / "results.json").read_text())
    if "scoring" not in found:
        missing("benchmarks/results.json has no scoring: make bench")
    return found["scoring"]


def test_results_have_their_figures():
    found = results()
    for name in ("study", "dynamic", "lm_eval"):
        low, high = found[f"range_{name}"]
        assert 1 < low <= found[f"ratio_{name}"] * 1.1
        assert found[f"ratio_{name}"] <= high * 1.1
        assert found["agreement"][name]["max_margin_difference"] < 1e-3
        assert found["agreement"][name]["equal_winners"] == 1.0
        assert found["agreement"][name]["prompts"] == found["sample"]["prompts"]
    assert 0 < found["gemm_share"] <= found["gemm_share_computed"] < 1.1
    assert found["bound_study"] == pytest.approx(found["bound_study_all_prompts"], rel=0.05)
    assert found["sample"]["shared_share"] == pytest.approx(found["all_prompts"]["shared_share"], abs=0.01)
    assert found["tokens"]["distinct"] <= found["tokens"]["computed"] <= found["tokens"]["padded_oodles"]
    assert found["all_prompts"]["prompts"] == 57_346
    assert found["sample"]["prompts"] >= bench.SIZE - 8  # not a quick run
    assert found["ratio_lm_eval"] >= 1.7  # what was promised
    assert found["ratio_study"] >= 0.95 * found["bound_study"]
    assert found["gemm_share"] >= 0.7


def test_the_page_shows_the_results(tmp_path: Path):
    found = results()
    text = bench.markdown(found)
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n<!-- mark -->\n\ntable\n")
    bench.put_into(page, "old\n", "<!-- mark -->")
    bench.put_into(page, text, "<!-- mark -->")
    assert page.read_text() == f"# Title\n\n{bench.BEGIN}\n\n{text}\n{bench.END}\n\n<!-- mark -->\n\ntable\n"
    bench.draw_figure(found, tmp_path / "scoring.png")
    assert 2_000 < (tmp_path / "scoring.png").stat().st_size < 60_000
    assert text in (ROOT / "docs" / "performance.md").read_text()
