"""Loads a judge: an unmask model, or a causal language model from the hub, a folder or a GGUF file.

Weights of other libraries are read as safetensors or GGUF, without remote code.
"""

import hashlib
import io
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

import torch

from unmask import shipped
from unmask.errors import UnmaskError
from unmask.evaluation.judges.causal_lm import CausalJudge
from unmask.evaluation.judges.judge import Judge, MethodJudge
from unmask.files.hub import reachable
from unmask.files.storage import cache_folder
from unmask.imports import extra
from unmask.model import Model, load
from unmask.runtime.device import resolve_device

DEFAULT_JUDGE = "openai-community/gpt2-large"  # the judge of published figures
_HINT = "give --judge a folder, a .gguf file or a run"
_HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")  # NAME or OWNER/NAME


def load_judge(
    spec: str | Path, device: str = "auto", prefix: str | None = None
) -> Model | CausalJudge:
    """Loads a judge.

    Args:
        spec: A model for `load`, a GGUF file, or a causal model by folder or hub name.
        device: Device of the judge.
        prefix: Token before every text; by default `usual_prefix` of the judge's tokenizer.
    """
    folder = shipped.locate(spec) if str(spec) in shipped.known() else Path(spec)
    if (folder / "model.json").exists() or (folder / "config.yaml").exists():
        if prefix is not None:
            raise UnmaskError(
                f"the judge {spec} is an unmask model, which takes no prefix: leave the prefix out"
            )
        return load(folder, device)
    return causal_judge(spec, resolve_device(device), prefix)


def judge_for(model: Model, judge: Model | CausalJudge) -> Judge:
    """The judge for the model's texts; an unmask model as judge must have the model's tokenizer."""
    if isinstance(judge, CausalJudge):
        return judge
    judge.refuse_pairs("give a model of text as the judge")
    if judge.tokenizer.fingerprint != model.tokenizer.fingerprint:
        raise UnmaskError(
            "the judge has another tokenizer than the model: give one trained with the model's"
        )
    return MethodJudge(judge.method, judge.length)


def causal_judge(spec: str | Path, device: torch.device, prefix: str | None = None) -> CausalJudge:
    """Loads a causal language model by hub name, folder or GGUF file."""
    path = Path(spec)
    gguf = _gguf(path)
    if _is_path(str(spec)) and not path.exists():
        raise UnmaskError(f"no judge {str(spec)!r}: there is no such folder or file; {_HINT}")
    if gguf is None and path.is_file():
        raise UnmaskError(f"no judge {str(spec)!r}: it is a file, and no .gguf; {_HINT}")
    transformers: Any = extra("transformers", f"the judge {str(spec)!r}", "eval")
    with _quietly(transformers, str(spec)):
        if gguf is not None:
            source: str | Path = _dequantised(transformers, gguf)
        elif path.exists():
            source = path
        else:
            source = str(spec)
            _check_hub(source)
        network, loaded = transformers.AutoModelForCausalLM.from_pretrained(
            source,
            dtype=torch.float32,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
        _check_whole(loaded)
        tokenizer = transformers.AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    name = str(spec) if not path.exists() else (gguf or path.resolve()).name
    return CausalJudge(network.to(device), tokenizer, name, prefix)


def _is_path(spec: str) -> bool:
    """True if `spec` is a path: it is no hub name, or its parent folder exists."""
    return not _HUB_NAME.fullmatch(spec) or ("/" in spec and Path(spec).parent.is_dir())


def _gguf(path: Path) -> Path | None:
    """The GGUF file: the path itself, or the only one in a folder without a config.json."""
    if path.suffix == ".gguf":
        if not path.is_file():
            raise UnmaskError(f"no judge {str(path)!r}: there is no such file; {_HINT}")
        return path
    if not path.is_dir() or (path / "config.json").exists():
        return None
    found = sorted(path.glob("*.gguf"))
    if len(found) > 1:
        raise UnmaskError(f"{path} holds {len(found)} GGUF files: give one of them as the judge")
    return found[0] if found else None


def _dequantised(transformers: Any, file: Path) -> Path:
    """A cached folder with a GGUF file's weights in half precision: reading GGUF is slow."""
    digest = hashlib.sha256()
    with file.open("rb") as content:
        for block in iter(lambda: content.read(2**24), b""):
            digest.update(block)
    folder = cache_folder() / "judges" / digest.hexdigest()[:32]
    if folder.exists():
        return folder
    for package in ("gguf", "accelerate"):
        extra(package, f"the judge {str(file)!r}", "eval")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as building:
        whole = Path(building) / "judge"
        source = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
        read, loaded = transformers.AutoModelForCausalLM.from_pretrained(
            **source, dtype=torch.float16, output_loading_info=True
        )
        _check_whole(loaded)
        del read.config.quantization_config
        # transformers marks the model as quantised, so its weights are copied to an unmarked one
        plain = type(read)(read.config)
        plain.load_state_dict(read.state_dict())
        plain.half().save_pretrained(whole)
        transformers.AutoTokenizer.from_pretrained(**source).save_pretrained(whole)
        if not folder.exists():  # another process may have made it meanwhile
            os.replace(whole, folder)
    return folder


def _check_whole(loaded: dict[str, Any]) -> None:
    """Raises an error for missing weights, which transformers would fill with random values."""
    if wrong := [*loaded["missing_keys"], *loaded["mismatched_keys"]]:
        raise ValueError(
            f"its weights are incomplete: {sorted(map(str, wrong))[0]} is missing or has another shape"
        )


def _check_hub(name: str) -> None:
    """Raises an error at once if the judge is not cached and the hub cannot be reached."""
    hub: Any = extra("huggingface_hub", f"the judge {name!r}", "eval")
    cached = isinstance(hub.try_to_load_from_cache(name, "config.json"), str)
    if not cached and not reachable(f"the judge {name!r}", "eval"):
        raise UnmaskError(
            f"no judge {name!r}: there is no such folder, and the hub cannot be reached; {_HINT}"
        )


@contextmanager
def _quietly(transformers: Any, spec: str) -> Iterator[None]:
    """Silences progress bars and log lines of loading, and turns errors into one-line ones."""
    logging = transformers.utils.logging
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        with redirect_stderr(io.StringIO()):
            yield
    except (UnmaskError, MemoryError):
        raise
    except Exception as error:  # a damaged file makes the libraries raise errors of any type
        reason = str(error).strip().partition("\n")[0]
        raise UnmaskError(f"no judge {spec!r}: {reason}; {_HINT}") from None
    finally:
        logging.set_verbosity(before)
