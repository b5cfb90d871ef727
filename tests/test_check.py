"""The audit of a study: what its runs use."""

from __future__ import annotations

from pathlib import Path

from oodles.study.check import audit_grid
from oodles.study.grid import expand
from oodles.study.load import load_study


def test_only_what_the_runs_use_is_audited(toy_study: Path) -> None:
    suite = toy_study.parent / "toy.toml"
    more = '[[test_sets]]\nname = "near"\nsource = { file = "near.csv" }\nlabels = { e = 0, c = 1 }\n'
    suite.write_text(f"{suite.read_text()}\n{more}")  # its file does not even exist
    grid = expand(load_study(toy_study, ['eval.test_sets=["home", "away", "far"]', "eval.limit=4"]))
    audit = audit_grid(grid)
    assert [(facts.kind, facts.name) for facts in audit.sets] == [
        ("train", "home"),
        ("test", "home"),
        ("test", "away"),
        ("test", "far"),
    ]
    far = audit.sets[-1]
    ((pattern, by_model),) = far.rendered.items()
    assert pattern == "question"
    assert list(by_model) == ["tiny-llama-untrained"]
    assert by_model["tiny-llama-untrained"].n == 4  # as sampled


def test_a_drawn_shot_in_a_test_set_stops_the_study(toy_study: Path) -> None:
    grid = expand(load_study(toy_study))
    assert not audit_grid(grid).errors()
    shot = grid.jobs[0].draw.examples[0]
    away = toy_study.parent / "away.csv"
    away.write_text(away.read_text() + f"leak,{shot.fields['premise']},{shot.fields['hypothesis']},{shot.label}\n")
    (leak,) = audit_grid(expand(load_study(toy_study))).errors()
    assert leak.code == "shots-in-test"
