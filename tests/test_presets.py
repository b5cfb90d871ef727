"""Presets are complete and true; models of every tested family load from copies laid out like the hub's cache."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import warnings
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    Gemma3TextConfig,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    Olmo2Config,
    OPTConfig,
    SmolLM3Config,
)

from conftest import missing, oodles
from oodles.contracts import Lora, ModelSpec
from oodles.errors import ModelError
from oodles.model.embedded import EMBEDDED, is_fetched
from oodles.model.load import (
    attach_lora,
    find_targets,
    load_config,
    load_model,
    load_tokenizer,
    outline_model,
    precision_of,
    resolve_model,
    shipped_config,
    slow_here,
    targets_of,
)
from oodles.model.presets import LLAMA, OPT, PRESETS, preset_of, table
from oodles.study.grid import expand
from oodles.study.load import load_study

DOCS = Path(__file__).parent.parent / "docs"


def test_the_presets_are_the_study_s_models_and_small_relatives() -> None:
    shipped = json.loads((resources.files("oodles.model") / "configs.json").read_text())
    assert list(shipped) == list(PRESETS)
    assert list(PRESETS)[:8] == [
        *("opt-2.7b", "opt-6.7b", "opt-13b", "opt-30b", "olmo2-7b", "olmo2-13b", "olmo2-32b", "smollm3-3b")
    ]
    assert not set(PRESETS) & set(EMBEDDED)  # the embedded SmolLM2 is other weights, so it has another label
    assert len({p.hub for p in PRESETS.values()}) == len(PRESETS)


@pytest.mark.parametrize("preset", PRESETS.values(), ids=lambda p: p.label)
def test_every_preset_is_complete(preset: Any) -> None:
    assert re.fullmatch(r"[a-z0-9.-]+", preset.label)
    assert re.fullmatch(r"[A-Za-z]+/[A-Za-z0-9.-]+", preset.hub)
    assert not re.search(r"instruct|chat|sft|dpo", preset.hub, flags=re.IGNORECASE)
    assert preset.source.startswith(f"https://huggingface.co/{preset.hub}")
    if preset.revision:
        assert preset.revision.replace("/", "%2F") in preset.source
    assert preset.precision == ("fp16" if preset.label.startswith("opt") else "bf16")
    assert preset.targets == (OPT if preset.label.startswith("opt") else LLAMA)
    assert preset.weight_bytes == 2 * preset.parameters
    assert preset.training_bytes > preset.weight_bytes
    assert preset.file_bytes == preset.parameters * (4 if preset.label.startswith("olmo2") else 2)
    assert resolve_model(preset.label) == ModelSpec(label=preset.label, source=preset.hub, revision=preset.revision)
    assert resolve_model(preset.hub) == resolve_model(preset.label)
    assert precision_of(resolve_model(preset.label)) == preset.precision


@pytest.mark.parametrize("label", PRESETS)
def test_parameters_and_targets_are_the_architecture_s(label: str) -> None:
    with torch.device("meta"):
        model = outline_model(resolve_model(label), shipped_config(resolve_model(label)))
    assert sum(p.numel() for p in model.parameters()) == PRESETS[label].parameters
    assert find_targets(model) == tuple(sorted(PRESETS[label].targets))


def test_names_near_a_preset_and_other_weights_of_its_name() -> None:
    with pytest.raises(ModelError, match=r"no such folder, embedded model or preset; did you mean 'opt-6.7b'\?"):
        resolve_model("opt6.7b")
    assert resolve_model("facebook/opt-6.7b@main").revision == "main"
    named = resolve_model("mine", source=ModelSpec(label="mine", source="opt-6.7b", revision="abc"))
    assert named == ModelSpec(label="mine", source="facebook/opt-6.7b", revision="abc")
    assert resolve_model("me/opt-6.7b").label == "me-opt-6.7b"  # a label says what the weights are
    assert resolve_model("HuggingFaceTB/SmolLM3-3B").label == "huggingfacetb-smollm3-3b"  # the instruct model
    assert resolve_model("me/smollm2-135m-q4").label == "me-smollm2-135m-q4"
    assert preset_of("me/opt-6.7b") is None


# copies laid out like the hub's cache

TINY = {"vocab_size": 1024, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 0}
GROUPED = {**TINY, **TOKENS, "intermediate_size": 64, "num_key_value_heads": 2, "max_position_embeddings": 256}
FAMILIES = {
    "opt": (OPTConfig(**TINY, **TOKENS, ffn_dim=64, word_embed_proj_dim=32, max_position_embeddings=256), "fp16", OPT),
    "olmo2": (Olmo2Config(**GROUPED), "bf16", LLAMA),
    "smollm3": (SmolLM3Config(**GROUPED), "bf16", LLAMA),
    "llama": (LlamaConfig(**GROUPED), "fp32", LLAMA),
    "gemma3_text": (Gemma3TextConfig(**GROUPED, head_dim=8), "bf16", LLAMA),
}
DTYPE = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def put_in_cache(cache: Path, made: Path, hub_id: str, revision: str = "main") -> Path:
    """Move a model folder to where the hub's client would have put it: blobs, a ref, a snapshot of links."""
    folder = cache / f"models--{hub_id.replace('/', '--')}"
    pinned = re.fullmatch("[0-9a-f]{40}", revision) is not None
    commit = revision if pinned else hashlib.sha1(hub_id.encode()).hexdigest()
    snapshot = folder / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (folder / "blobs").mkdir()
    for file in made.iterdir():
        blob = folder / "blobs" / hashlib.sha256(file.read_bytes()).hexdigest()
        file.rename(blob)
        (snapshot / file.name).symlink_to(Path("../../blobs") / blob.name)
    ref = folder / "refs" / revision
    ref.parent.mkdir(parents=True)
    ref.write_text(commit)
    return snapshot


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_CACHE_DIR", str(tmp_path / "hub"))
    return tmp_path / "hub"


@pytest.fixture
def make(tmp_path: Path, tiny_model: Path) -> Any:
    """A folder with a tiny untrained model of a family, in a dtype, and a tokenizer."""

    def make_one(family: str, precision: str) -> Path:
        folder = tmp_path / "made"
        folder.mkdir()
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(FAMILIES[family][0]).to(DTYPE[precision]).save_pretrained(folder)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(tiny_model / name, folder)
        return folder

    return make_one


def check_loads(spec: ModelSpec, precision: str, targets: tuple[str, ...]) -> None:
    model = load_model(spec)
    assert {p.dtype for p in model.parameters()} == {DTYPE[precision]}
    assert set(targets_of(model, Lora(), spec)) == set(targets)
    adapted = attach_lora(model, Lora(rank=2), 0, spec)
    changed = {n.split(".lora_")[0] for n, p in adapted.named_parameters() if p.requires_grad}
    assert {n.split(".")[-1] for n in changed} == set(targets)
    assert len(changed) == 2 * len(targets)
    assert {p.dtype for p in adapted.parameters() if p.requires_grad} == {torch.float32}
    tokens = load_tokenizer(spec)("A man sits. Question: Somebody sits. Yes or No?", return_tensors="pt")
    assert torch.isfinite(adapted(input_ids=tokens["input_ids"]).logits).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_loads_from_the_cache_by_id_and_by_folder(family: str, cache: Path, make: Any) -> None:
    _, precision, targets = FAMILIES[family]
    snapshot = put_in_cache(cache, make(family, precision), f"org/tiny-{family}")
    files = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "generation_config.json"}
    assert {p.name for p in snapshot.iterdir()} == files
    by_folder, by_id = resolve_model(str(snapshot)), resolve_model(f"org/tiny-{family}")
    assert by_id == ModelSpec(label=f"tiny-{family}", source=f"org/tiny-{family}")
    for spec in (by_folder, by_id):
        assert load_config(spec).model_type == family
        assert precision_of(spec) == precision
        check_loads(spec, precision, targets)


@pytest.mark.parametrize(
    ("label", "family", "published"),
    [("opt-125m", "opt", "fp32"), ("olmo2-1b", "olmo2", "fp32"), ("smollm3-3b", "smollm3", "bf16")],
)
def test_a_preset_loads_in_its_dtype_from_its_revision(
    label: str, family: str, published: str, cache: Path, make: Any
) -> None:
    """Also where the files state another dtype, as OLMo2's do."""
    preset = PRESETS[label]
    put_in_cache(cache, make(family, published), preset.hub, preset.revision or "main")
    check_loads(resolve_model(label), preset.precision, preset.targets)


def test_a_precision_asked_for_is_the_one_loaded(make: Any) -> None:
    spec = resolve_model(str(make("llama", "bf16")))
    for precision, dtype in DTYPE.items():
        assert precision_of(spec, precision) == precision  # type: ignore[arg-type]
        assert {p.dtype for p in load_model(spec, precision).parameters()} == {dtype}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("stated", "found"),
    [
        ({"dtype": "bfloat16"}, "bf16"),
        ({"torch_dtype": "float16"}, "fp16"),
        ({"torch_dtype": "float32"}, "fp32"),
        ({"dtype": None}, "fp32"),
        ({}, "fp32"),
    ],
)
def test_a_folder_s_dtype_is_what_its_config_states(make: Any, stated: dict[str, str], found: str) -> None:
    folder = make("llama", "fp32")
    config = json.loads((folder / "config.json").read_text())
    del config["dtype"]
    (folder / "config.json").write_text(json.dumps(config | stated))
    spec = resolve_model(str(folder))
    assert precision_of(spec) == found
    (folder / "config.json").write_text(json.dumps(config | {"dtype": "float8_e4m3fn"}))
    with pytest.raises(ModelError, match=r"states dtype float8_e4m3fn, expected float32, .* set \[train\] precision"):
        precision_of(spec)


def test_embedded_models_are_fp32_and_as_large_as_said(tiny_model: Path) -> None:
    for label, embedded in EMBEDDED.items():
        spec = resolve_model(label)
        assert precision_of(spec) == "fp32"
        if is_fetched(label):
            outline = outline_model(spec)
            assert sum(p.numel() for p in outline.parameters()) == embedded.parameters
            assert {p.device.type for p in outline.parameters()} == {"meta"}
            assert find_targets(outline) == tuple(sorted(LLAMA))
            assert str(load_config(spec).dtype) == "torch.float32"
    if not is_fetched("smollm2-135m-q4"):
        missing("the model is not in the cache: oodles fetch smollm2-135m-q4")


# in a study


def test_a_study_resolves_precision_per_model_before_ids_are_made(toy_study: Path, make: Any) -> None:
    folder = make("olmo2", "bf16")
    models = f'grid.models=["tiny-llama-untrained", "{folder}", "smollm2-360m"]'

    def jobs(*more: str) -> dict[str, Any]:
        return {j.spec.model.label: j.spec for j in expand(load_study(toy_study, [models, *more])).jobs}

    found = jobs()
    precisions = {label: spec.recipe.precision for label, spec in found.items()}
    assert precisions == {"tiny-llama-untrained": "fp32", "made": "bf16", "smollm2-360m": "bf16"}
    asked = jobs("train.precision=bf16")
    assert asked["made"].run_id == found["made"].run_id
    assert asked["tiny-llama-untrained"].run_id != found["tiny-llama-untrained"].run_id


def test_a_model_out_of_reach_needs_its_precision_said(toy_study: Path) -> None:
    study = [toy_study, "--set", 'grid.models=["org/none"]']
    done = oodles("run", *study, "--dry-run")
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert "model 'org/none' cannot be loaded" in line
    assert line.endswith("; or set [train] precision (--precision) to fp32, bf16 or fp16")
    assert oodles("run", *study, "--dry-run", "--set", "train.precision=bf16").returncode == 0


def test_half_precision_on_a_cpu_is_a_caveat() -> None:
    spec = resolve_model("opt-125m")
    assert slow_here(spec, "fp32") == ""
    if not torch.cuda.is_available():
        assert slow_here(spec, "fp16").startswith("opt-125m is loaded in fp16, which is slow on a CPU")


# targets of other architectures


def tiny(config: Any) -> torch.nn.Module:
    return AutoModelForCausalLM.from_config(config)


@pytest.mark.parametrize(
    ("config", "targets"),
    [
        (GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4), ("attn.c_proj", "c_attn")),
        (
            GPTNeoXConfig(**{**TINY, "vocab_size": 64}, intermediate_size=64),
            ("dense", "query_key_value"),
        ),
        (BloomConfig(vocab_size=64, hidden_size=32, n_layer=2, n_head=4), ("dense", "query_key_value")),
    ],
    ids=["gpt2", "gpt_neox", "bloom"],
)
def test_targets_are_the_attention_projections_only(config: Any, targets: tuple[str, ...]) -> None:
    model = tiny(config)
    assert find_targets(model) == targets
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        adapted = attach_lora(model, Lora(rank=2), 0)
    changed = {n.split(".lora_")[0] for n, p in adapted.named_parameters() if p.requires_grad}
    assert len(changed) == 4
    assert all(".attn." in n or ".attention." in n or ".self_attention." in n for n in changed)


def test_a_name_that_an_mlp_shares_is_told_apart() -> None:
    block = torch.nn.ModuleDict(
        {
            "attention": torch.nn.ModuleDict({"query": torch.nn.Linear(4, 4), "dense": torch.nn.Linear(4, 4)}),
            "mlp": torch.nn.ModuleDict({"dense": torch.nn.Linear(4, 4)}),
        }
    )
    assert find_targets(torch.nn.ModuleDict({"block": block})) == ("attention.dense", "query")
    with pytest.raises(ModelError, match=r"no attention projection was found .* \[lora\] targets"):
        find_targets(torch.nn.ModuleDict({"mlp": block["mlp"]}))


def test_the_study_s_targets_come_first() -> None:
    model, spec = tiny(FAMILIES["opt"][0]), resolve_model("opt-125m")
    assert targets_of(model, Lora(targets=("fc1",)), spec) == ("fc1",)
    assert targets_of(model, Lora(), spec) == OPT
    assert targets_of(model, Lora()) == tuple(sorted(OPT))
    adapted = attach_lora(model, Lora(targets=("fc1",)), 0, spec)
    assert {n.split(".lora_")[0].split(".")[-1] for n, _ in adapted.named_parameters() if "lora_" in n} == {"fc1"}


# what is refused


def test_pickled_weights_are_refused(cache: Path, make: Any) -> None:
    folder = make("llama", "fp32")
    torch.save(AutoModelForCausalLM.from_pretrained(folder).state_dict(), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"no \.safetensors file") as told:
        resolve_model(str(folder))
    assert "\n" not in str(told.value)
    specs = [ModelSpec(label="m", source=str(folder))]
    copy = shutil.copytree(folder, folder.parent / "copy")
    put_in_cache(cache, copy, "org/pickled")
    specs.append(resolve_model("org/pickled"))
    for spec in specs:
        with pytest.raises(ModelError, match="has no safetensors, and pickled weights are not loaded") as told:
            load_model(spec)
        assert "\n" not in str(told.value)
        assert "use_safetensors" not in str(told.value)


def test_code_of_a_model_s_repository_is_not_run(tmp_path: Path, make: Any) -> None:
    folder, ran = make("llama", "fp32"), tmp_path / "ran"
    code = f"from pathlib import Path\nPath({str(ran)!r}).touch()\nfrom transformers import LlamaConfig as Own\n"
    (folder / "own.py").write_text(code)
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.Own"}}
    (folder / "config.json").write_text(json.dumps(config))
    spec = resolve_model(str(folder))
    for load in (load_config, load_model, outline_model):
        with pytest.raises(ModelError, match="needs code from its own repository") as told:
            load(spec)
        assert "\n" not in str(told.value)
    assert not ran.exists()


# the command line and the docs


def test_models_lists_and_shows(make: Any, tiny_model: Path) -> None:
    rows = {r["model"]: r for r in json.loads(oodles("models", "--json").stdout)}
    assert set(rows) == {*PRESETS, *EMBEDDED}
    assert rows["opt-6.7b"]["weight_bytes"] == 2 * 6_658_473_984
    shown = oodles("models").stdout
    assert "allenai/OLMo-2-0325-32B" in shown
    assert "64.5 GB" in shown
    folder = make("opt", "fp16")
    facts = json.loads(oodles("models", folder, "--json").stdout)
    assert (facts["kind"], facts["dtype"], facts["context"]) == ("folder", "fp16", 256)
    assert facts["targets"] == sorted(OPT)
    assert facts["parameters"] == sum(p.numel() for p in load_model(resolve_model(str(folder))).parameters())
    embedded = json.loads(oodles("models", "tiny-llama-untrained", "--json").stdout)
    assert (embedded["kind"], embedded["context"]) == ("embedded", 512)
    assert "q_proj" in oodles("models", folder).stdout


def test_a_preset_is_shown_where_the_hub_is_out_of_reach() -> None:
    facts = json.loads(oodles("models", "olmo2-7b", "--json").stdout)
    assert facts["source"] == "allenai/OLMo-2-1124-7B"
    assert facts["dtype"] == "bf16"
    assert facts["context"] is None
    assert "HF_HUB_OFFLINE" in facts["note"]
    shown = oodles("models", "facebook/opt-6.7b").stdout
    assert "facebook/opt-6.7b at refs/pr/31" in shown
    assert "6,658,473,984" in shown


@pytest.mark.parametrize(
    ("name", "message"),
    [("opt-6.7", "did you mean 'opt-6.7b'?"), ("org/none", "model 'org/none' cannot be loaded")],
)
def test_models_that_cannot_be_shown(name: str, message: str) -> None:
    done = oodles("models", name)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert message in done.stderr


def test_the_table_in_the_docs_is_the_presets() -> None:
    assert table() in (DOCS / "models.md").read_text()
