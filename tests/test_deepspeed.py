"""DeepSpeed settings of one's own: what is taken of them, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oodles.errors import ConfigError
from oodles.study.load import load_study

# as the documentation of transformers shows it
USUAL = {
    "fp16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
    "gradient_clipping": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "zero_optimization": {
        "stage": 3,
        "overlap_comm": True,
        "reduce_bucket_size": "auto",
        "sub_group_size": 1000000000,
        "stage3_gather_16bit_weights_on_model_save": True,
    },
}


def load(study: Path, settings: object, engine: str = "zero3") -> str:
    (study.parent / "ds.json").write_text(json.dumps(settings))
    return load_study(study, [f"engine={engine}", "engine_config=ds.json"]).engine_config


def test_only_what_moves_memory_and_messages_is_taken(toy_study: Path) -> None:
    assert json.loads(load(toy_study, USUAL)) == {
        "zero_optimization": {"overlap_comm": True, "sub_group_size": 1000000000}
    }


def test_the_settings_themselves_may_stand_for_their_file(toy_study: Path) -> None:
    taken = load(toy_study, USUAL)
    assert load_study(toy_study, ["engine=zero3", f"engine_config={taken!r}"]).engine_config == taken


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"zero_optimization": {"stage": 2}}, r'ds\.json: zero_optimization.stage is 2, but engine is "zero3"'),
        ({"zero_optimization": {"offload_param": {"device": "cpu"}}}, r"zero_optimization.offload_param would change"),
        ({"amp": {"enabled": True}, "data_types": {}}, r"amp, data_types would change what is computed"),
        ({"zero_optimization": {"stage": "3"}}, r'zero_optimization.stage is "3", but engine is "zero3"'),
        ({"zero_optimization": {"reduce_bucket_size": "big"}}, r'reduce_bucket_size is "big", expected a whole number'),
        (
            {"zero_optimization": {"sub_group_size": 0.5}},
            r"sub_group_size is 0.5, expected a whole number of 0 or more",
        ),
        ({"zero_optimization": {"overlap_comm": 1}}, r"zero_optimization.overlap_comm is 1, expected true or false"),
        ({"wall_clock_breakdown": "yes"}, r'wall_clock_breakdown is "yes", expected true or false'),
        ({"comms_logger": True}, r"comms_logger is true, expected a table"),
        ([], r"ds\.json is no table"),
        ({"zero_optimization": 3}, r"zero_optimization is no table"),
    ],
)
def test_what_would_change_a_run_is_refused_by_name(settings: object, message: str, toy_study: Path) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        load(toy_study, settings)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["engine=ddp", "engine_config=ds.json"], r'engine_config is for DeepSpeed, but engine is "ddp"'),
        (["engine=zero2", "engine_config=none.json"], r"engine_config none.json: No such file"),
        (["engine=zero2", "engine_config=accelerate.yaml"], r"accelerate.yaml: No such file"),
        (["engine=fsdp2", "engine_config=ds.json"], r"engine_config ds.json: No such file"),
        (["engine=fsdp2", "engine_config='{}'"], r'engine "fsdp2" takes a configuration of Accelerate'),
        (["engine=zero2", "engine_config='{'"], r"engine_config is not JSON"),
    ],
)
def test_a_file_that_is_none_is_refused(overrides: list[str], message: str, toy_study: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        load_study(toy_study, overrides)
