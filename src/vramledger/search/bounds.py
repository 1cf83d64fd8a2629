"""What surely does not hold, told without a plan."""

from __future__ import annotations

from vramledger.formats.weights import Dense
from vramledger.hardware.catalogue import Device
from vramledger.models.checkpoint import Checkpoint
from vramledger.models.tensors import Component
from vramledger.search.terms import Question, terms_of


def least_weight_bytes(checkpoint: Checkpoint) -> int:
    """Bytes that the matrices of the decoder's layers take on all devices together, at least.

    Every part of them is on some device, and cutting never makes them smaller in sum. Elements wider than 16 bits
    count as 16, which is what an engine may load them as; embeddings, heads, drafts and other modalities, which an
    engine may leave out or share, do not count.
    """
    return sum(
        min(item.stored_bytes, 2 * item.tensor.total_elements)
        if isinstance(item.format, Dense)
        else item.stored_bytes
        for item in checkpoint.stored
        if item.tensor.linear and item.tensor.layers and item.tensor.component is Component.DECODER
    )


def weights_beyond_bytes(question: Question, least_bytes: int, device: Device) -> int:
    """By how much the weights alone pass the memory of the fullest device, at least; 0 where they may not.

    `least_bytes` is `least_weight_bytes` of the checkpoint asked about. An engine that may keep weights in host memory is
    never told off here.
    """
    if not terms_of(question.engine).keeps_weights:
        return 0
    share = least_bytes // question.devices
    return max(share - device.total_high_bytes, 0)
