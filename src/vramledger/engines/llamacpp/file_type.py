"""Element types of a file's tensors from its file type (Q4_K_M, IQ3_XS, F16, ...), as llama-quantize chooses them.

Source: llama.cpp src/llama-quant.cpp (llama_tensor_get_type, tensor_type_fallback, tensor_allows_quantization) without
an importance matrix, --pure or per-tensor overrides. Published files made with those differ by some layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from vramledger.engines.llamacpp.file_tensors import FileTensor
from vramledger.errors import FlagError
from vramledger.formats.ggml import ggml_type

FILE_TYPES = MappingProxyType({
    "F32": "F32", "F16": "F16", "BF16": "BF16", "Q4_0": "Q4_0", "Q4_1": "Q4_1", "Q5_0": "Q5_0", "Q5_1": "Q5_1",
    "Q8_0": "Q8_0", "MXFP4_MOE": "MXFP4", "Q2_K": "Q2_K", "Q2_K_S": "Q2_K", "IQ3_XS": "IQ3_S", "Q3_K_S": "Q3_K",
    "Q3_K_M": "Q3_K", "Q3_K_L": "Q3_K", "Q4_K_S": "Q4_K", "Q4_K_M": "Q4_K", "Q5_K_S": "Q5_K", "Q5_K_M": "Q5_K",
    "Q6_K": "Q6_K", "TQ1_0": "TQ1_0", "TQ2_0": "TQ2_0", "IQ2_XXS": "IQ2_XXS", "IQ2_XS": "IQ2_XS", "IQ2_S": "IQ2_XS",
    "IQ2_M": "IQ2_S", "IQ3_XXS": "IQ3_XXS", "IQ1_S": "IQ1_S", "IQ1_M": "IQ1_M", "IQ4_NL": "IQ4_NL",
    "IQ4_XS": "IQ4_XS", "IQ3_S": "IQ3_S", "IQ3_M": "IQ3_S",
})  # fmt: skip
"""File types by llama-quantize's names, with the type most tensors get."""

_SYNONYMS = MappingProxyType({"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M", "Q2_K_M": "Q2_K"})

_KEPT = (
    "_norm.weight", "ffn_gate_inp.weight", "altup", "laurel", "per_layer_model_proj", "ssm_conv1d", "shortconv.conv.weight",
    "indexer.k_proj.weight", "indexer.q_proj.weight", "attn_rel_b.weight",
)  # fmt: skip
_SHAPED = MappingProxyType({
    **dict.fromkeys(("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_XS"), "IQ4_NL"),
    **dict.fromkeys(("Q2_K", "Q3_K", "TQ1_0", "TQ2_0"), "Q4_0"),
    "Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0",
})  # fmt: skip
_LOW = frozenset({"IQ2_XXS", "IQ2_XS", "IQ1_S", "IQ2_S", "IQ2_M", "IQ1_M"})


class ModelFacts(Struct, frozen=True, kw_only=True):
    """What the choice of types asks of a model: experts (0: none), query heads per KV head, blocks, and whether it
    is Llama's 70B."""

    experts: int
    gqa: int
    blocks: int
    is_70b: bool
    is_falcon: bool


def file_type_name(text: str) -> str:
    """The file type of any spelling ("q4_k_m", "Q4_K - Medium"). Raises FlagError for one that there is not."""
    name = (
        text.strip()
        .upper()
        .replace(" - MEDIUM", "_M")
        .replace(" - SMALL", "_S")
        .replace(" - LARGE", "_L")
        .replace("IQ3_S MIX", "IQ3_M")
    )
    name = name.partition(" ")[0]
    name = _SYNONYMS.get(name, name)
    if name not in FILE_TYPES:
        raise FlagError(f"--ftype {text!r} is not one of {', '.join(FILE_TYPES)}", flag="ftype", value=text)
    return name


def typed(tensors: Sequence[FileTensor], file_type: str, facts: ModelFacts) -> tuple[FileTensor, ...]:
    """`tensors` with the types a file of this type gives those that have none yet."""
    base = FILE_TYPES[file_type]
    if base in ("F32", "F16", "BF16"):
        return tuple(item if item.type else replace(item, type=_unquantised(item, base)) for item in tensors)
    counter = _Counter(tensors, facts)
    out = []
    for item in tensors:
        if item.type:
            out.append(item)
        elif not quantised(item):
            out.append(replace(item, type=_unquantised(item, "F16")))
        else:
            chosen = _shaped(item, counter.choose(item, file_type, base))
            out.append(replace(item, type=chosen))
    return tuple(out)


def quantised(tensor: FileTensor) -> bool:
    """Whether llama-quantize touches a tensor: matrices only, and not the small or delicate ones."""
    name = tensor.name
    return (
        sum(size > 1 for size in tensor.dims) > 1
        and name.endswith("weight")
        and not any(part in name for part in _KEPT)
        and name not in ("position_embd.weight", "token_types.weight")
    )


def _unquantised(tensor: FileTensor, base: str) -> str:
    """Routers stay F32 in every conversion; so does what is no matrix."""
    name = tensor.name
    if "ffn_gate_inp" in name or "altup" in name or "laurel" in name or not name.endswith("weight"):
        return "F32"
    return base


def _shaped(tensor: FileTensor, chosen: str) -> str:
    """A type whose blocks fit the row, where the chosen one's do not."""
    if tensor.dims[0] % ggml_type(chosen).block_elements == 0:
        return chosen
    fallback = _SHAPED.get(chosen, chosen)
    return fallback if tensor.dims[0] % ggml_type(fallback).block_elements == 0 else "F16"


class _Counter:
    """llama-quantize's running counts: some rules go by how many tensors of a kind came before."""

    def __init__(self, tensors: Sequence[FileTensor], facts: ModelFacts) -> None:
        self.facts = facts
        self.values = sum(_is_value(item.name) for item in tensors)
        self.tied = not any(item.name == "output.weight" for item in tensors)
        self.value = self.down = 0

    def choose(self, tensor: FileTensor, file_type: str, base: str) -> str:
        name = tensor.name
        is_embedding = name in ("token_embd.weight", "per_layer_token_embd.weight")
        if name == "output.weight" or (is_embedding and self.tied):
            return self._output(tensor, file_type, base)
        if file_type == "MXFP4_MOE":
            return "MXFP4" if len(tensor.dims) > 2 and tensor.dims[2] > 1 else "Q8_0"
        if is_embedding:
            return _embedding(file_type, base)
        if file_type in _LOW:
            return self._low(name, file_type, base)
        if _is_value(name):
            chosen = self._values(file_type, base)
            self.value += 1
            if self.facts.experts == 8:
                return "Q8_0"
            return "Q5_K" if self.facts.is_70b and chosen in ("Q3_K", "Q4_K") else chosen
        if "attn_k.weight" in name:
            if self.facts.experts == 8:
                return "Q8_0"
            return {"IQ3_XS": "IQ3_XXS", "IQ3_XXS": "IQ2_S"}.get(file_type, base)
        if "attn_q.weight" in name:
            return {"IQ3_XS": "IQ3_XXS", "IQ3_XXS": "IQ2_S"}.get(file_type, base)
        if "attn_output.weight" in name:
            return self._attention_output(file_type, base)
        if "ffn_up" in name or "ffn_gate" in name:
            layer = tensor.layer or 0
            middle = self.facts.blocks // 8 <= layer < 7 * self.facts.blocks // 8
            return "IQ3_XXS" if file_type == "IQ3_XS" and middle else base
        if "ffn_down" in name:
            layer = self.down if self.facts.experts <= 1 else (tensor.layer or 0)
            self.down += 1
            return self._down(layer, file_type, base)
        return base

    def _output(self, tensor: FileTensor, file_type: str, base: str) -> str:
        if (
            file_type == "MXFP4_MOE"
            or self.facts.is_falcon
            or tensor.dims[0] % ggml_type(base).block_elements
        ):
            return "Q8_0"
        if file_type in ("IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ2_S", "IQ2_M", "IQ1_M"):
            return "Q5_K"
        return base if base == "Q8_0" else "Q6_K"

    def _low(self, name: str, file_type: str, base: str) -> str:
        wider = file_type in ("IQ2_S", "IQ2_M")
        if _is_value(name):
            self.value += 1
            if self.facts.gqa >= 4 or self.facts.experts >= 4:
                return "Q4_K"
            return "IQ3_S" if wider else "Q2_K"
        if self.facts.experts == 8 and "attn_k.weight" in name:
            return "Q4_K"
        if "ffn_down" in name:
            self.down += 1
            first = self.down <= self.facts.blocks // 8
            return ("IQ3_S" if wider else "Q2_K") if first else base
        if "attn_output.weight" in name:
            if self.facts.experts == 8:
                return "Q5_K"
            return "IQ2_XXS" if file_type in ("IQ1_S", "IQ1_M") else "IQ3_S" if wider else base
        return base

    def _values(self, file_type: str, base: str) -> str:
        shared = self.facts.gqa >= 4
        match file_type:
            case "Q2_K":
                return "Q4_K" if shared else "Q3_K"
            case "Q2_K_S" | "IQ3_XS" | "IQ3_S" if shared:
                return "Q4_K"
            case "IQ3_XXS":
                return "Q4_K" if shared else "IQ3_S"
            case "IQ3_M":
                return "Q4_K"
            case "Q3_K_M":
                return "Q5_K" if self.value < 2 else "Q4_K"
            case "Q3_K_L":
                return "Q5_K"
            case "IQ4_NL" | "IQ4_XS" if shared:
                return "Q5_K"
            case "Q4_K_M" | "Q5_K_M" if _more_bits(self.value, self.values):
                return "Q6_K"
            case "Q4_K_S" if self.value < 4:
                return "Q5_K"
        return base

    def _attention_output(self, file_type: str, base: str) -> str:
        if self.facts.is_falcon:
            return "Q4_K" if file_type == "Q3_K_L" else base
        if self.facts.experts == 8:
            raised = {
                "Q2_K", "IQ3_XS", "IQ3_XXS", "Q3_K_S", "Q3_K_M", "IQ4_NL", "Q4_K_S", "Q4_K_M", "IQ3_S", "IQ3_M",
                "IQ4_XS",
            }  # fmt: skip
            return "Q5_K" if file_type in raised else base
        return {"Q2_K": "Q3_K", "IQ3_XXS": "IQ3_S", "Q3_K_M": "Q4_K", "Q3_K_L": "Q5_K", "IQ3_M": "Q4_K"}.get(
            file_type, base
        )

    def _down(self, layer: int, file_type: str, base: str) -> str:
        blocks, falcon = self.facts.blocks, self.facts.is_falcon
        early, more = layer < blocks // 8, _more_bits(layer, blocks)
        match file_type:
            case "Q2_K":
                return "Q3_K"
            case "Q2_K_S" if early:
                return "Q4_K"
            case "IQ3_XXS":
                return "Q4_K" if early else "Q3_K"
            case "Q3_K_M":
                if layer < blocks // 16:
                    return "Q5_K"
                return "Q4_K" if not falcon or more else "Q3_K"
            case "IQ3_M" if early or (self.facts.experts == 8 and more):
                return "Q4_K"
            case "Q3_K_L":
                return "Q4_K" if falcon else "Q5_K"
            case "Q4_K_M" if falcon:
                return "Q6_K" if layer < blocks // 16 else "Q5_K" if more else "Q4_K"
            case "Q4_K_M" | "Q5_K_M" if more:
                return "Q6_K"
            case "IQ4_NL" | "IQ4_XS" if early:
                return "Q5_K"
            case "Q4_K_S" if early and not falcon:
                return "Q5_K"
        return base


def _embedding(file_type: str, base: str) -> str:
    if file_type in ("IQ2_XXS", "IQ2_XS", "IQ1_S", "IQ1_M"):
        return "Q2_K"
    if file_type in ("IQ2_S", "IQ2_M", "IQ3_XXS"):
        return "IQ3_S"
    return "Q4_K" if file_type in ("TQ1_0", "TQ2_0") else base


def _is_value(name: str) -> bool:
    return any(part in name for part in ("attn_v.weight", "attn_qkv.weight", "attn_kv_b.weight"))


def _more_bits(layer: int, layers: int) -> bool:
    """The layers that keep more bits: the first and the last eighth, and every third between."""
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2
