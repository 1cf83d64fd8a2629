"""A step model in a file: JSON with the fields of `StepModel`, its evidence among them."""

from __future__ import annotations

import msgspec

from vramledger.errors import InputError
from vramledger.simulation.step_model import StepModel

_MOST_PS = 10**15
_COSTS = ("overhead_ps", "floor_ps", "token_ps", "decode_seq_ps", "kv_token_ps", "pair_ps_per_1024")


def read_step(data: bytes, where: str) -> StepModel:
    """The step model in `data`; `where` names the file in messages. Raises InputError for what is none, and for times that
    are negative, longer than a thousand seconds, or all 0."""
    try:
        step = msgspec.json.decode(data, type=StepModel)
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise InputError(
            f"{where} holds no step model: {problem}; it is JSON with {', '.join(_COSTS)} and evidence",
            file=where,
            reason=str(problem),
        ) from None
    for name in _COSTS:
        value = getattr(step, name)
        if not 0 <= value <= _MOST_PS:
            raise InputError(
                f"{where}: {name} is {value}, not from 0 to {_MOST_PS} picoseconds",
                file=where,
                key=name,
                value=value,
            )
    if step.step_ps(tokens=1, decode_seqs=1, kv_tokens=0, pairs=0) < 1:
        raise InputError(f"{where}: a step takes no time, every cost of it is 0", file=where)
    return step


def step_json(step: StepModel) -> bytes:
    """The file's content for a step model."""
    return msgspec.json.format(msgspec.json.encode(step), indent=2) + b"\n"
