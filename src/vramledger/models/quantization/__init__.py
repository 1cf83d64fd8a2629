"""Quantisation configs: which format each tensor of a model has in its checkpoint.

`read_quantization` turns config.json (and ModelOpt's hf_quant_config.json) into a `QuantizationScheme`;
`apply` gives every tensor of a model with its format, split only where layers differ.
"""

from vramledger.models.quantization.read import read_quantization
from vramledger.models.quantization.scheme import DeclaredKv, QuantizationScheme, StoredTensor, apply

__all__ = ["DeclaredKv", "QuantizationScheme", "StoredTensor", "apply", "read_quantization"]
