"""Configurations of Accelerate: which engine they are, what must agree with the study, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import oodles
from oodles.contracts import LAYERS
from oodles.contracts import ZERO as STAGES
from oodles.errors import ConfigError
from oodles.store.folder import RunFolder
from oodles.study.load import load_study
from test_engines import check_engine, find_deepspeed, largest_difference, make
from test_engines import references as references  # fixtures
from test_engines import study as study

# as `accelerate config` writes it
USUAL: dict[str, Any] = {
    "compute_environment": "LOCAL_MACHINE",
    "debug": False,
    "downcast_bf16": "no",
    "enable_cpu_affinity": False,
    "gpu_ids": "all",
    "machine_rank": 0,
    "main_training_function": "main",
    "mixed_precision": "no",
    "num_machines": 1,
    "num_processes": 2,
    "rdzv_backend": "static",
    "same_network": True,
    "tpu_env": [],
    "tpu_use_cluster": False,
    "tpu_use_sudo": False,
    "use_cpu": False,
}
FSDP = {
    "fsdp_version": 2,
    "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    "fsdp_transformer_layer_cls_to_wrap": "LlamaDecoderLayer",
    "fsdp_reshard_after_forward": True,
    "fsdp_offload_params": False,
    "fsdp_state_dict_type": "SHARDED_STATE_DICT",
    "fsdp_cpu_ram_efficient_loading": True,
    "fsdp_activation_checkpointing": False,
}
ZERO = {
    "zero_stage": 2,
    "gradient_accumulation_steps": 1,
    "gradient_clipping": 1.0,
    "offload_optimizer_device": "none",
    "offload_param_device": "none",
    "zero3_init_flag": False,
}
OF = {
    "ddp": {"distributed_type": "MULTI_CPU"},
    "fsdp2": {"distributed_type": "FSDP", "fsdp_config": FSDP},
    "zero2": {"distributed_type": "DEEPSPEED", "deepspeed_config": ZERO},
    "zero3": {"distributed_type": "DEEPSPEED", "deepspeed_config": {"deepspeed_config_file": "ds.json"}},
}
TAKEN = {
    "ddp": None,
    "fsdp2": {LAYERS: ["LlamaDecoderLayer"]},
    "zero2": {"zero_optimization": {}},
    "zero3": {"zero_optimization": {"stage3_prefetch_bucket_size": 5000}},
}


def write(study: Path, **config: Any) -> str:
    settings = {"zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 5000}, "train_batch_size": "auto"}
    study.with_name("ds.json").write_text(json.dumps(settings))
    study.with_name("accelerate.yaml").write_text(yaml.safe_dump({**USUAL, **config}))
    return "engine_config=accelerate.yaml"


@pytest.mark.parametrize("engine", OF)
def test_a_configuration_names_an_engine(engine: str, toy_study: Path) -> None:
    found = load_study(toy_study, [write(toy_study, **OF[engine])])
    assert (found.engine, found.processes) == (engine, 2)
    assert (json.loads(found.engine_config) if found.engine_config else None) == TAKEN[engine]
    again = [f"engine={engine}", "processes=2", *([f"engine_config='{found.engine_config}'"] * bool(TAKEN[engine]))]
    assert load_study(toy_study, again) == found  # as a job of SLURM has it
    toy_study.with_name("accelerate.json").write_text(json.dumps({**USUAL, **OF[engine]}))
    assert load_study(toy_study, ["engine_config=accelerate.json"]) == found


@pytest.mark.slow
@pytest.mark.parametrize("engine", OF)
def test_two_processes_have_the_engine_of_the_configuration(
    engine: str,
    study: Path,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    references: dict[str, RunFolder],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wrapper, number of processes and what each holds are asserted; the result is that of one process."""
    if engine in STAGES:
        find_deepspeed(monkeypatch)
    if "single" not in references:
        references["single"] = make(study, tmp_path_factory.mktemp("single"), "single")
    alone = references["single"]
    together = make(study, tmp_path / "out", "single", write(study, **OF[engine]))  # the study names no engine
    check_engine(together, engine)
    assert json.loads(together.env.read_text()).get("engine_config") == TAKEN[engine]
    weights, scores = largest_difference(alone, together)
    assert weights < 1e-5
    assert scores < 1e-4


@pytest.mark.slow
def test_layers_that_a_model_has_not_are_named(study: Path, tmp_path: Path) -> None:
    told = write(study, **fsdp(fsdp_transformer_layer_cls_to_wrap="GPT2Block"))
    done = oodles("run", study, "--out", tmp_path / "out", "--set", told, OMP_NUM_THREADS="1")
    assert done.returncode == 1
    assert f"LlamaForCausalLM has no GPT2Block, which {LAYERS} of engine_config names" in done.stderr


def fsdp(**changed: Any) -> dict[str, Any]:
    return {"distributed_type": "FSDP", "fsdp_config": {**FSDP, **changed}}


def zero(**changed: Any) -> dict[str, Any]:
    return {"distributed_type": "DEEPSPEED", "deepspeed_config": {**ZERO, **changed}}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"distributed_type": "MEGATRON_LM"}, "distributed_type is MEGATRON_LM, which oodles has no engine for"),
        ({"distributed_type": "XLA"}, "distributed_type is XLA, which oodles has no engine for"),
        ({"distributed_type": "NO"}, 'is NO, which is engine "single"; leave engine_config out'),
        ({"distributed_type": False}, 'is NO, which is engine "single"'),
        (fsdp(fsdp_version=1), "fsdp_version is 1, and FSDP 1 is not FSDP 2"),
        ({"distributed_type": "FSDP", "fsdp_config": {}}, "fsdp_version is 1, and FSDP 1 is not FSDP 2"),
        ({"distributed_type": "FSDP", "fsdp_config": 3}, "fsdp_config is no table"),
        (fsdp(fsdp_offload_params=True), "fsdp_offload_params is True, expected False"),
        (fsdp(fsdp_reshard_after_forward=False), "fsdp_reshard_after_forward is False, expected True"),
        (fsdp(fsdp_auto_wrap_policy="SIZE_BASED_WRAP"), "fsdp_auto_wrap_policy is SIZE_BASED_WRAP"),
        (fsdp(fsdp_activation_checkpointing=True), "fsdp_activation_checkpointing is True, expected False: .train."),
        (fsdp(fsdp_transformer_layer_cls_to_wrap=3), "cls_to_wrap is 3, expected names of classes"),
        (fsdp(fsdp_min_num_params=100), "fsdp_config: fsdp_min_num_params would change"),
        (zero(zero_stage=1), "the stage of ZeRO is 1, expected 2 or 3"),
        (zero(gradient_accumulation_steps=4), "gradient_accumulation_steps is 4, but .train. accumulate is 1"),
        (zero(gradient_clipping=0.5), "gradient_clipping is 0.5, but .train. max_grad_norm is 1.0"),
        (zero(offload_param_device="cpu"), "deepspeed_config: offload_param_device would change"),
        (
            {"distributed_type": "DEEPSPEED", "deepspeed_config": {"deepspeed_config_file": "none.json"}},
            "deepspeed_config: none.json: No such file",
        ),
        (
            {
                "distributed_type": "DEEPSPEED",
                "deepspeed_config": {"deepspeed_config_file": "ds.json", "zero_stage": 2},
            },
            "ds.json: zero_stage beside a deepspeed_config_file",
        ),
        ({**OF["ddp"], "num_processes": 1}, 'num_processes is 1, expected at least 2: with one, engine "ddp" would be'),
        ({**OF["ddp"], "num_machines": 2}, "num_machines is 2, expected 1"),
        ({**OF["ddp"], "mixed_precision": "bf16"}, 'mixed_precision is bf16, but .train. precision is "auto"'),
        ({**OF["ddp"], "gpu_ids": "0,1"}, "gpu_ids is 0,1; set CUDA_VISIBLE_DEVICES"),
        ({**OF["ddp"], "compute_environment": "AMAZON_SAGEMAKER"}, "compute_environment is AMAZON_SAGEMAKER"),
        ({**OF["ddp"], "dynamo_config": {"dynamo_backend": "INDUCTOR"}}, "dynamo_config would change what is computed"),
        ({**OF["ddp"], "downcast_bf16": True}, "downcast_bf16 would change what is computed"),
    ],
)
def test_what_would_become_another_run_is_refused_by_name(
    config: dict[str, Any], message: str, toy_study: Path
) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        load_study(toy_study, [write(toy_study, **config)])
    assert str(refused.value).startswith("study.toml: engine_config accelerate.yaml: ")
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("engine=fsdp2", 'MULTI_CPU is engine "ddp", but the study says engine = "fsdp2"; make them agree'),
        ("engine=single", 'MULTI_CPU is engine "ddp", but the study says engine = "single"'),
        ("processes=4", "num_processes is 2, but the study says processes = 4; make them agree"),
    ],
)
def test_a_study_that_says_otherwise_is_refused(override: str, message: str, toy_study: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        load_study(toy_study, [write(toy_study, **OF["ddp"]), override])


def test_what_agrees_is_taken(toy_study: Path) -> None:
    told = write(toy_study, **zero(gradient_accumulation_steps=4), mixed_precision="bf16", num_processes=None)
    found = load_study(toy_study, [told, "train.accumulate=4", "train.precision=bf16", "engine=zero2", "processes=3"])
    assert (found.engine, found.processes) == ("zero2", 3)


@pytest.mark.parametrize(("text", "message"), [("a: [", "is not YAML"), ("- 1", "has no distributed_type")])
def test_a_file_that_is_none_is_refused(text: str, message: str, toy_study: Path) -> None:
    toy_study.with_name("accelerate.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_study(toy_study, ["engine_config=accelerate.yaml"])
