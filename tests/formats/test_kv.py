import pytest

from vramledger.errors import UnknownFormat
from vramledger.formats.dtypes import DType
from vramledger.formats.kv import KV_FORMAT_NAMES, kv_bytes, kv_format, latent_bytes


def one_head(name: str, head_dim: int = 128, v_head_dim: int = 128) -> int:
    return kv_bytes(
        kv_format(name, DType.BF16), tokens=1, kv_heads=1, head_dim=head_dim, v_head_dim=v_head_dim
    )


@pytest.mark.parametrize(
    ("name", "size_bytes"),
    [
        ("auto", 512),
        ("float16", 512),
        ("fp8", 256),
        ("fp8_e5m2", 256),
        ("int8_per_token_head", 256 + 8),
        ("fp8_per_token_head", 256 + 8),
        ("int4_per_token_head", 128 + 8),
        ("nvfp4", 2 * (64 + 8)),
        ("turboquant_k8v4", 128 + 64 + 4),
        ("turboquant_4bit_nc", 64 + 2 + 64 + 4),
        ("turboquant_3bit_nc", 48 + 2 + 48 + 4),
    ],
)
def test_bytes_of_one_token_in_one_head_of_128(name: str, size_bytes: int) -> None:
    assert one_head(name) == size_bytes


def test_turboquant_slots_are_even() -> None:
    assert one_head("turboquant_k8v4", 7, 7) == 7 + 4 + 4 + 1


def test_keys_and_values_may_differ_and_tokens_and_heads_multiply() -> None:
    kind = kv_format("bfloat16", DType.F16)
    assert kv_bytes(kind, tokens=3, kv_heads=5, head_dim=192, v_head_dim=128) == 3 * 5 * 2 * (192 + 128)


@pytest.mark.parametrize(
    ("name", "size_bytes"), [("auto", 1152), ("fp8", 576), ("fp8_ds_mla", 656), ("nvfp4_ds_mla", 352)]
)
def test_deepseek_latent(name: str, size_bytes: int) -> None:
    assert latent_bytes(kv_format(name, DType.BF16), tokens=1, kv_lora_rank=512, rope_dim=64) == size_bytes


def test_latents_and_heads_are_not_mixed_up() -> None:
    with pytest.raises(UnknownFormat):
        one_head("fp8_ds_mla")
    with pytest.raises(UnknownFormat):
        latent_bytes(kv_format("turboquant_k8v4", DType.BF16), tokens=1, kv_lora_rank=512, rope_dim=64)


def test_auto_follows_the_model_and_unknown_names_are_refused() -> None:
    assert kv_format("auto", DType.F32).name == "float32"
    for name in ("q4_0", "int3", "float8_e4m3fn"):
        with pytest.raises(UnknownFormat):
            kv_format(name, DType.BF16)


def test_every_name_can_be_sized_one_way_or_the_other() -> None:
    for name in KV_FORMAT_NAMES:
        kind = kv_format(name, DType.BF16)
        if name.endswith("ds_mla"):
            assert latent_bytes(kind, tokens=2, kv_lora_rank=512, rope_dim=64) > 0
        else:
            assert kv_bytes(kind, tokens=2, kv_heads=1, head_dim=64, v_head_dim=64) > 0
