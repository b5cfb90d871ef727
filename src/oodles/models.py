"""Load a causal language model and its tokenizer, and attach LoRA.

A model is an embedded name (`oodles fetch`), a folder laid out like the hub, or a hub id (`org/name`, or with a
commit, `org/name@revision`).
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oodles.errors import MissingExtraError, ModelError, nearest
from oodles.fetch import EMBEDDED, MADE_HERE, fetch, is_fetched, model_folder
from oodles.records import Lora, ModelSpec

if TYPE_CHECKING:
    import torch

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj", "out_proj", "query_key_value", "c_attn", "qkv_proj", "dense")


def resolve_model(name: str, folder: str | Path = "", source: ModelSpec | None = None) -> ModelSpec:
    """What a study calls a model -> which weights exactly. Loads nothing."""
    wanted = source.source if source else name
    revision = source.revision if source else None
    if wanted in EMBEDDED:
        return ModelSpec(label=name, source=wanted, revision=EMBEDDED[wanted].revision)
    for path in (Path(wanted), Path(folder) / wanted):
        if path.is_dir():
            label = name if source else path.resolve().name
            return ModelSpec(label=label, source=str(path.resolve()), revision=folder_fingerprint(path))
    if wanted.startswith((".", "/", "~")) or "/" not in wanted:
        raise ModelError(
            f"model '{wanted}': no such folder or embedded model; {nearest(wanted, EMBEDDED)} or a hub id org/name"
        )
    hub_id, _, at = wanted.partition("@")
    label = name if source else hub_id.split("/")[-1].lower()
    return ModelSpec(label=label, source=hub_id, revision=revision or at or None)


def folder_fingerprint(path: Path) -> str:
    """Identifies a model folder by its config and weights, cheaply: names, sizes, and both ends of each file."""
    if not (path / "config.json").is_file():
        raise ModelError(f"{path}: no config.json; expected a model folder as save_pretrained writes it")
    digest = hashlib.sha256((path / "config.json").read_bytes())
    weights = sorted(path.glob("*.safetensors"))
    if not weights:
        raise ModelError(
            f"{path}: no .safetensors file; convert the weights with save_pretrained(safe_serialization=True)"
        )
    for file in weights:
        size = file.stat().st_size
        with file.open("rb") as handle:
            digest.update(f"{file.name} {size}".encode() + handle.read(1 << 20))
            handle.seek(max(0, size - (1 << 20)))
            digest.update(handle.read())
    return f"folder:{digest.hexdigest()[:16]}"


def model_path(spec: ModelSpec) -> str:
    """What from_pretrained is given."""
    if spec.source not in EMBEDDED:
        return spec.source
    if not is_fetched(spec.source) and spec.source == MADE_HERE:
        fetch(spec.source, lambda _: None)
    if not is_fetched(spec.source):
        raise ModelError(f"model '{spec.source}' is not in the cache; run: oodles fetch {spec.source}")
    return str(model_folder(spec.source))


def _require_transformers(what: str) -> None:
    try:
        import transformers  # noqa: F401
    except ImportError:
        raise MissingExtraError(what, "data") from None


def _switched_off() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").strip().upper() in ("1", "ON", "YES", "TRUE")


def _cache() -> str | None:
    """HF_HOME is honoured by the library; HF_CACHE_DIR, which much public code uses, only if it is passed on."""
    return os.environ.get("HF_CACHE_DIR")


def require_training(what: str) -> None:
    """Say which extra is missing before any work starts."""
    try:
        import peft  # noqa: F401
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError:
        raise MissingExtraError(what, "train") from None


def load_config(spec: ModelSpec) -> Any:
    """The model's config; needs transformers, no torch."""
    _require_transformers("reading a model's config")
    from transformers import AutoConfig

    with _quiet_loading(), _as_model_error(spec):
        return AutoConfig.from_pretrained(model_path(spec), revision=_commit(spec), cache_dir=_cache())


def load_tokenizer(spec: ModelSpec) -> Any:
    """The model's tokenizer; pads with eos where it has no pad token. Needs transformers, no torch."""
    _require_transformers("loading a tokenizer")
    from transformers import AutoTokenizer

    with _quiet_loading(), _as_model_error(spec):
        tokenizer = AutoTokenizer.from_pretrained(model_path(spec), revision=_commit(spec), cache_dir=_cache())
    if tokenizer.pad_token_id is None:
        if tokenizer.eos_token_id is None:
            raise ModelError(f"model '{spec.label}': its tokenizer has neither a pad nor an eos token; set one")
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_model(spec: ModelSpec, precision: str = "fp32") -> torch.nn.Module:
    """The base model in the precision asked for, on the best device here."""
    require_training("loading a model")
    import torch
    from transformers import AutoModelForCausalLM

    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    with _quiet_loading(), _as_model_error(spec):
        model = AutoModelForCausalLM.from_pretrained(
            model_path(spec),
            revision=_commit(spec),
            dtype=dtype,
            use_safetensors=True,
            trust_remote_code=False,
            cache_dir=_cache(),
        )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return model.to(device)


def attach_lora(model: torch.nn.Module, lora: Lora, seed: int) -> torch.nn.Module:
    """A PEFT model; the adapter's first weights come from `seed` alone."""
    import torch
    from peft import LoraConfig, get_peft_model

    targets = lora.targets or find_targets(model)
    config = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        bias=lora.bias,
        target_modules=list(targets),
        task_type="CAUSAL_LM",
    )
    torch.manual_seed(seed)
    try:
        return get_peft_model(model, config)
    except ValueError as error:
        raise ModelError(f"LoRA cannot be attached: {str(error).splitlines()[0]}; set [lora] targets") from None


def find_targets(model: torch.nn.Module) -> tuple[str, ...]:
    """The attention projections of any architecture, by their usual names."""
    import torch

    found = {
        name.split(".")[-1]
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and ("attn" in name.lower() or "attention" in name.lower())
    } & set(ATTENTION)
    if not found:
        raise ModelError("no attention projection was found to adapt; name the modules in [lora] targets")
    return tuple(sorted(found))


def _commit(spec: ModelSpec) -> str:
    """A hub revision; folders and embedded models are pinned by their content instead."""
    if spec.revision is None or ":" in spec.revision:
        return "main"
    return spec.revision


@contextlib.contextmanager
def _as_model_error(spec: ModelSpec) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, json.JSONDecodeError, KeyError) as error:
        reason = " ".join(str(error).split())[:200]
        offline = "; the hub is switched off (HF_HUB_OFFLINE)" if _switched_off() else ""
        raise ModelError(f"model '{spec.source}' cannot be loaded: {reason}{offline}") from None


@contextlib.contextmanager
def _quiet_loading() -> Iterator[None]:
    """Loading bars would tear our own progress apart."""
    from transformers.utils import logging

    was_enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        if was_enabled:
            logging.enable_progress_bar()
