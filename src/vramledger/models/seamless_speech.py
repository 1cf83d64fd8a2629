"""SeamlessM4T's speech output: the unit vocoder (a HiFi-GAN, Kong et al. 2020) and the duration predictors."""

from __future__ import annotations

from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.tensors import Role, hidden, vocab, whole

EDGE_KERNEL = 7
MAX_STAGES = 16
MAX_KERNEL = 65536


def predictor(place: Place, name: str, *, embed: int, inner: int, kernel: int) -> None:
    """Two convolutions with a norm each, and one value a position."""
    for index, channels in ((1, embed), (2, inner)):
        _conv(place, f"{name}.conv{index}", inner, channels, kernel)
        place.norm(f"{name}.ln{index}", inner, bias=True)
    place.linear(f"{name}.proj", Role.OTHER, whole(1), hidden(inner), bias=True, quantizable=False)


def list_vocoder(place: Place, config: Config) -> None:
    """Unit, speaker and language embeddings, a duration predictor and the generator.

    Each stage halves the channels; it has one residual block a kernel size, of two convolutions a dilation.
    Raises ConfigError for channels that do not halve so often.
    """
    units = config.integer("unit_embed_dim", default=1280)
    speakers = config.integer("spkr_embed_dim", default=256)
    languages = config.integer("lang_embed_dim", default=256)
    kernel = config.integer("variance_predictor_kernel_size", default=3, maximum=MAX_KERNEL)
    predictor(place, "dur_predictor", embed=units, inner=units, kernel=kernel)
    for name, rows, width in (
        ("unit_embedding", config.integer("unit_hifi_gan_vocab_size", default=10000), units),
        ("speaker_embedding", config.integer("vocoder_num_spkrs", default=200), speakers),
        ("language_embedding", config.integer("vocoder_num_langs", default=36), languages),
    ):
        place.tensor(f"{name}.weight", Role.EMBEDDING, vocab(rows), hidden(width))
    _list_generator(place.at(f"{place.prefix}hifi_gan."), config, units + speakers + languages)


def _list_generator(place: Place, config: Config, inputs: int) -> None:
    channels = config.integer("upsample_initial_channel", default=512)
    stages = config.integers("upsample_kernel_sizes", minimum=1, maximum=MAX_KERNEL) or (11, 8, 8, 4, 4)
    kernels = config.integers("resblock_kernel_sizes", minimum=1, maximum=MAX_KERNEL) or (3, 7, 11)
    if len(stages) > MAX_STAGES or len(kernels) > MAX_STAGES:
        raise config.fail(
            "upsample_kernel_sizes", f"or resblock_kernel_sizes has more than {MAX_STAGES} items"
        )
    if channels % 2 ** len(stages):
        raise config.fail("upsample_initial_channel", f"{channels} does not halve {len(stages)} times")
    dilations = _dilations(config, len(kernels))
    _conv(place, "conv_pre", channels, inputs, EDGE_KERNEL)
    for stage, size in enumerate(stages):
        half = channels // 2
        # A transposed convolution keeps its input channels first.
        place.tensor(f"upsampler.{stage}.weight", Role.OTHER, whole(channels), whole(half), whole(size))
        place.tensor(f"upsampler.{stage}.bias", Role.OTHER, whole(half))
        for block, (kernel, count) in enumerate(zip(kernels, dilations, strict=True)):
            for part in ("convs1", "convs2"):
                index = stage * len(kernels) + block
                several = place.at(f"{place.prefix}resblocks.{index}.{part}.{{block}}", copies=count)
                _conv(several, "", half, half, kernel)
        channels = half
    _conv(place, "conv_post", 1, channels, EDGE_KERNEL)


def _dilations(config: Config, blocks: int) -> tuple[int, ...]:
    """How many dilations each residual block has."""
    lists = config.items("resblock_dilation_sizes") or ((1, 3, 5),) * blocks
    if len(lists) != blocks or not all(
        isinstance(item, list | tuple) and len(item) <= MAX_STAGES for item in lists
    ):
        raise config.fail("resblock_dilation_sizes", f"must hold {blocks} short lists, one a kernel size")
    return tuple(len(item) for item in lists)


def _conv(place: Place, name: str, out: int, inp: int, kernel: int) -> None:
    place.tensor(f"{name}.weight", Role.OTHER, whole(out), whole(inp), whole(kernel))
    place.tensor(f"{name}.bias", Role.OTHER, whole(out))
