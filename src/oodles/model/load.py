"""Load a causal language model and its tokenizer, and attach LoRA.

A model is an embedded name (`oodles fetch`), a preset (`oodles models`), a folder laid out like the hub, or a hub id
(`org/name`, or with a commit, `org/name@revision`). Weights are read from safetensors only, and code from a model's
repository is never run.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from oodles.contracts import Lora, ModelSpec, Precision, content_hash
from oodles.errors import MissingExtraError, ModelError, OodlesError, first_line, nearest, shown
from oodles.model.embedded import EMBEDDED, MADE_HERE, check_fetched, fetch, is_fetched, known_hash, model_folder
from oodles.model.presets import PRESETS, preset_of
from oodles.names import as_name, check_name
from oodles.shapes import load_json, misfit
from oodles.suite.hub import unreachable

if TYPE_CHECKING:
    import torch

DTYPES: dict[str, Precision] = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}  # as spelled in a config


def resolve_model(name: str, folder: str | Path = "", source: ModelSpec | None = None) -> ModelSpec:
    """Resolve a model name of a study to exact weights. Loads nothing."""
    wanted = source.source if source else name
    if source:
        check_name(name, "the label of a model")
    revision = source.revision if source else None
    if wanted in EMBEDDED:
        return ModelSpec(label=name, source=wanted, revision=EMBEDDED[wanted].revision)
    if wanted in PRESETS:
        return ModelSpec(label=name, source=PRESETS[wanted].hub, revision=revision or PRESETS[wanted].revision)
    for path in (Path(wanted), Path(folder) / wanted):
        if path.is_dir():
            label = name if source else as_name(path.resolve().name)
            return ModelSpec(label=label, source=str(path.resolve()), revision=folder_fingerprint(path))
    if wanted.startswith((".", "/", "~")) or "/" not in wanted:
        hint = nearest(wanted, [*EMBEDDED, *PRESETS])
        raise ModelError(f"model '{wanted}': no such folder, embedded model or preset; {hint} or a hub id org/name")
    hub_id, _, at = wanted.partition("@")
    preset = preset_of(hub_id)
    label = name if source else preset.label if preset else _own_label(hub_id)
    check_name(label, f"model '{shown(wanted)}': its label")
    return ModelSpec(label=label, source=hub_id, revision=revision or at or (preset.revision if preset else None))


def _own_label(hub_id: str) -> str:
    """Return the last part of a hub id, unless it is the label of other weights."""
    label = hub_id.split("/")[-1].lower()
    return hub_id.replace("/", "-").lower() if label in PRESETS or label in EMBEDDED else label


TOKENIZER_FILES = (
    "tokenizer*",
    "vocab*",
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template*",
)


def folder_fingerprint(path: Path) -> str:
    """Fingerprint a model folder by every byte of its config, weights and tokenizer."""
    if not (path / "config.json").is_file():
        raise ModelError(f"{path}: no config.json; expected a model folder as save_pretrained writes it")
    weights = sorted(path.glob("*.safetensors"))
    if not weights:
        raise ModelError(
            f"{path}: no .safetensors file; convert the weights with save_pretrained(safe_serialization=True)"
        )
    words = sorted({file for pattern in TOKENIZER_FILES for file in path.glob(pattern) if file.is_file()})
    hashes = [[file.name, known_hash(file)] for file in (path / "config.json", *weights, *words)]
    return f"folder:{content_hash(hashes)}"


def model_path(spec: ModelSpec) -> str:
    """Return the path or id for from_pretrained; refuse weights that differ from the spec."""
    if spec.source not in EMBEDDED:
        _check_folder(spec)
        return spec.source
    if not is_fetched(spec.source) and spec.source == MADE_HERE:
        fetch(spec.source, lambda _: None)
    if not is_fetched(spec.source):
        raise ModelError(f"model '{spec.source}' is not in the cache; run: oodles fetch {spec.source}")
    check_fetched(spec.source)
    return str(model_folder(spec.source))


def _check_folder(spec: ModelSpec) -> None:
    if not (spec.revision or "").startswith("folder:"):
        return
    fingerprint = folder_fingerprint(Path(spec.source))
    if fingerprint != spec.revision:
        raise ModelError(
            f"{spec.source}: holds other weights, config or tokenizer ({fingerprint}) than the study began with"
            f" ({spec.revision}); restore them, or choose another --out"
        )


def _require_transformers(what: str) -> None:
    try:
        import transformers  # noqa: F401
    except ImportError:
        raise MissingExtraError(what, "data") from None


def _switched_off() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").strip().upper() in ("1", "ON", "YES", "TRUE")


def _cache() -> str | None:
    """Return HF_CACHE_DIR, which much public code uses; the library itself only honours HF_HOME."""
    return os.environ.get("HF_CACHE_DIR")


def require_training(what: str) -> None:
    """Report a missing extra before any work starts."""
    try:
        import peft  # noqa: F401
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError:
        raise MissingExtraError(what, "train") from None


def load_config(spec: ModelSpec, instead: str = "") -> Any:
    """Load the model's config; needs transformers but not torch. `instead` is the alternative if it is unreachable."""
    _require_transformers("reading a model's config")
    from transformers import AutoConfig

    return _from_pretrained(AutoConfig, spec, instead)


def load_tokenizer(spec: ModelSpec) -> Any:
    """Load the model's tokenizer, with eos as pad token if it has none; needs transformers but not torch."""
    _require_transformers("loading a tokenizer")
    from transformers import AutoTokenizer

    tokenizer = _from_pretrained(AutoTokenizer, spec)
    if tokenizer.pad_token_id is None:
        if tokenizer.eos_token_id is None:
            raise ModelError(f"model '{spec.label}': its tokenizer has neither a pad nor an eos token; set one")
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_model(
    spec: ModelSpec, precision: Precision = "auto", device: Literal["cpu", "meta", "auto"] | None = None
) -> torch.nn.Module:
    """Load the base model in the requested precision, on the best available device unless one is given.

    On the meta device it has no weights; `auto` lets accelerate spread it over all devices of this process.
    """
    require_training("loading a model")
    import torch
    from transformers import AutoModelForCausalLM

    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision_of(spec, precision)]
    if device == "meta":
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(load_config(spec), dtype=dtype).eval()
    if device == "auto":
        return _from_pretrained(AutoModelForCausalLM, spec, dtype=dtype, use_safetensors=True, device_map="auto")
    model = _from_pretrained(AutoModelForCausalLM, spec, dtype=dtype, use_safetensors=True)
    return model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))


def placed(model: torch.nn.Module) -> str:
    """Say where accelerate has put the modules of a model.

    >>> from types import SimpleNamespace
    >>> placed(SimpleNamespace(hf_device_map={"embed": 0, "layers.0": 0, "layers.1": 1, "head": "disk"}))
    'modules per device: 2 on 0, 1 on 1, 1 on disk'
    """
    counts = Counter(str(device) for device in _device_map(model).values())
    return "modules per device: " + ", ".join(f"{number} on {device}" for device, number in counts.items())


def offloaded(model: torch.nn.Module) -> int:
    """Return how many modules of a spread model are not on the device that computes them."""
    devices = [str(device) for device in _device_map(model).values()]
    away = {"disk"} if set(devices) <= {"cpu", "disk"} else {"cpu", "disk"}
    return sum(device in away for device in devices)


def _device_map(model: torch.nn.Module) -> dict[str, Any]:
    """Return where each module is; accelerate says nothing of a model that is on one device."""
    return getattr(model, "hf_device_map", None) or {"": next(model.parameters()).device}


def free_memory() -> None:
    """Free a model's memory: a Trainer and its callbacks reference each other, so only the collector frees them."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


def shipped_config(spec: ModelSpec) -> Any:
    """Return the config of a preset that ships with oodles; None for any other model or revision.

    It contains only what determines shapes, for estimates. Loading a model uses the hub's config.
    """
    preset = preset_of(spec.source)
    if preset is None or spec.revision != preset.revision:
        return None
    from transformers import AutoConfig

    shipped = json.loads((resources.files("oodles.model") / "configs.json").read_text(encoding="utf-8"))
    return AutoConfig.for_model(**shipped[preset.label])


def outline_model(spec: ModelSpec, config: Any = None) -> torch.nn.Module:
    """Build the model's modules and shapes from its config alone; no weights are downloaded or held."""
    require_training("looking into a model")
    import torch
    from transformers import AutoModelForCausalLM

    config = load_config(spec) if config is None else config
    with _quiet_loading(), _as_model_error(spec), torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, trust_remote_code=False)


def precision_of(spec: ModelSpec, precision: Precision = "auto") -> Precision:
    """Return fp32, bf16 or fp16: the requested precision, else the preset's, else that of the model's config."""
    if precision != "auto":
        return precision
    if preset := preset_of(spec.source):
        return preset.precision
    if spec.source in EMBEDDED:
        return "fp32"  # embedded models are stored in fp32
    say_it = "set [train] precision (--precision) to fp32, bf16 or fp16"
    stated = _stated_dtype(spec, say_it)
    if stated not in DTYPES:
        raise ModelError(
            f"model '{spec.label}': its config states dtype {stated}, expected {', '.join(DTYPES)}; {say_it}"
        )
    return DTYPES[stated]


def _stated_dtype(spec: ModelSpec, instead: str) -> str:
    """Read the dtype directly from a folder's config, so that a study can be expanded without transformers."""
    if Path(spec.source).is_dir():
        try:
            config = load_json(Path(spec.source) / "config.json")
            problem = misfit(config, {"dtype?": (str, None), "torch_dtype?": (str, None)})
        except (OSError, ValueError) as error:
            problem = first_line(error)
        if problem:
            raise ModelError(f"{spec.source}: its config.json cannot be read ({problem}); rewrite it")
        return str(config.get("dtype") or config.get("torch_dtype") or "float32")
    return str(load_config(spec, instead).dtype or "float32").removeprefix("torch.")


def slow_here(spec: ModelSpec, precision: str) -> str:
    """Return a caveat if half precision is slow here (on a CPU), else nothing."""
    import torch

    if precision == "fp32" or torch.cuda.is_available():
        return ""
    return (
        f"{spec.label} is loaded in {precision}, which is slow on a CPU;"
        " precision fp32 is faster here and takes twice the memory"
    )


def attach_lora(model: torch.nn.Module, lora: Lora, seed: int, spec: ModelSpec | None = None) -> torch.nn.Module:
    """Return a PEFT model; the adapter's first weights depend on `seed` alone."""
    import torch
    from peft import LoraConfig, get_peft_model

    targets = targets_of(model, lora, spec)
    config = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        bias=lora.bias,
        target_modules=list(targets),
        fan_in_fan_out=_stores_transposed(model, targets),
        task_type="CAUSAL_LM",
    )
    torch.manual_seed(seed)
    try:
        return get_peft_model(model, config)
    except ValueError as error:
        raise ModelError(f"LoRA cannot be attached: {str(error).splitlines()[0]}; set [lora] targets") from None


def targets_of(model: torch.nn.Module, lora: Lora, spec: ModelSpec | None = None) -> tuple[str, ...]:
    """Return the modules that LoRA adapts: those of the study, else the preset's, else the attention projections."""
    preset = preset_of(spec.source) if spec else None
    return lora.targets or (preset.targets if preset else find_targets(model))


def find_targets(model: torch.nn.Module) -> tuple[str, ...]:
    """Return the attention projections of any architecture, by the shortest unambiguous ends of their names."""
    layers = [name for name, module in model.named_modules() if _is_projection(module)]
    inside = [name for name in layers if any(_is_attention(part) for part in name.split(".")[:-1])]
    outside = set(layers).difference(inside)
    if not inside:
        raise ModelError("no attention projection was found to adapt; name the modules in [lora] targets")
    return tuple(sorted({_shortest_end(name, outside) for name in inside}))


def _is_projection(module: torch.nn.Module) -> bool:
    import torch
    from transformers.pytorch_utils import Conv1D  # GPT-2's linear layer

    return isinstance(module, (torch.nn.Linear, Conv1D))


def _is_attention(part: str) -> bool:
    return "attn" in part.lower() or "attention" in part.lower()


def _shortest_end(name: str, others: set[str]) -> str:
    """Return the shortest end that identifies a layer: GPT-2 has c_proj in attention and MLP, hence `attn.c_proj`."""
    parts = name.split(".")
    ends = [".".join(parts[-n:]) for n in range(1, len(parts) + 1)]
    return next(end for end in ends if not any(other.endswith(f".{end}") for other in others))


def _stores_transposed(model: torch.nn.Module, targets: tuple[str, ...]) -> bool:
    """Whether the targets are GPT-2's kind of layer, which PEFT needs to know."""
    from transformers.pytorch_utils import Conv1D

    ends = tuple(f".{target}" for target in targets)
    return any(isinstance(module, Conv1D) and name.endswith(ends) for name, module in model.named_modules())


def _from_pretrained(kind: Any, spec: ModelSpec, instead: str = "", **more: Any) -> Any:
    """Load with `kind` from a folder, the hub, or only the cache if the hub does not answer.

    Unless trust_remote_code is False, transformers may ask on the terminal.
    """
    path, revision = model_path(spec), _commit(spec)
    away = "" if Path(path).is_dir() or _switched_off() else unreachable(path, revision)
    more |= {"revision": revision, "cache_dir": _cache(), "trust_remote_code": False, "local_files_only": bool(away)}
    with _quiet_loading(), _as_model_error(spec, away, instead):
        return kind.from_pretrained(path, **more)


def _commit(spec: ModelSpec) -> str:
    """Return a hub revision; folders and embedded models are pinned by their content instead."""
    if spec.revision is None or ":" in spec.revision:
        return "main"
    return spec.revision


@contextlib.contextmanager
def _as_model_error(spec: ModelSpec, away: str = "", instead: str = "") -> Iterator[None]:
    """Turn errors into one line; `away` says why the hub was not asked, `instead` names the alternative."""
    from safetensors import SafetensorError

    try:
        yield
    except SafetensorError as error:
        raise ModelError(f"model '{spec.source}' cannot be loaded: its weights are damaged ({error})") from None
    except OodlesError:
        raise
    except Exception as error:  # the libraries raise many kinds of errors for a damaged or unexpected file
        reason = _plainly(" ".join(str(error).split()) or type(error).__name__, away)
        parts = [f"model '{spec.source}' cannot be loaded: {reason.rstrip('.')}"]
        parts += ["the hub is switched off (HF_HUB_OFFLINE)"] if _switched_off() else []
        parts += [f"or {instead}"] if instead and (away or isinstance(error, OSError)) else []  # a file is missing
        raise ModelError("; ".join(parts)) from None


def _plainly(reason: str, away: str) -> str:
    """Remove advice from a transformers message to turn off safeguards."""
    if "trust_remote_code" in reason:
        needs = "it needs code from its own repository (auto_map), which oodles does not run"
        return f"{needs}; use an architecture that is in transformers"
    if away:
        return f"{away}, and the cache has no complete copy; check the network, or pass the model's folder"
    if "safetensors" in reason and ("no file named" in reason or "does not appear to have" in reason):
        lacks = "it has no safetensors, and pickled weights are not loaded"
        return f"{lacks}; name a revision that has them, or convert a copy with save_pretrained"
    return _first_sentences(reason)


def _first_sentences(text: str, most: int = 300) -> str:
    """Return as many whole sentences as fit, at least one; some errors list every known architecture.

    >>> _first_sentences("It failed. Look at a.b, c and d. " + "More. " * 99, 36)
    'It failed. Look at a.b, c and d.'
    """
    first, *others = text.split(". ")
    for other in others:
        if len(first) + len(other) + 3 > most:
            return first + "."
        first = f"{first}. {other}"
    return first if len(first) <= most else f"{first[:most].rsplit(' ', 1)[0]} ..."


@contextlib.contextmanager
def _quiet_loading() -> Iterator[None]:
    """Hide loading bars, which would interrupt our own progress output."""
    from huggingface_hub.utils import logging as hub_logging
    from transformers.utils import logging

    was_enabled, level = logging.is_progress_bar_enabled(), hub_logging.get_verbosity()
    logging.disable_progress_bar()
    hub_logging.set_verbosity_error()  # it logs every retry, with the full address
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        hub_logging.set_verbosity(level)
        if was_enabled:
            logging.enable_progress_bar()
