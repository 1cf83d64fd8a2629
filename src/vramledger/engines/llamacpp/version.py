"""Builds of llama.cpp, and from which build each rule holds.

Source: llama.cpp, the pull requests and commits named below; state of c392e50 (February 2025), of 0c1e57098 (autumn
2026), and of builds between as far as published logs tell them apart.
"""

from __future__ import annotations

import re

from msgspec import Struct

from vramledger.errors import FlagError

_BUILD = re.compile(r"b?(\d{4,5})(?:\.\d+){0,2}(?:[-+(].*)?")
_MARKS = {"2025-02": 4754, "2026-05": 9010, "newest": 11549}


class LlamaBuild(Struct, frozen=True, order=True):
    """A build by its number."""

    number: int

    def __str__(self) -> str:
        return f"b{self.number}"

    @property
    def has_windows(self) -> bool:
        """Caches of their own for sliding windows (PR 13194, May 2025)."""
        return self.number >= 5427

    @property
    def windows_by_ubatch(self) -> bool:
        """Windowed caches have room for a ubatch; before, for a batch (PR 13833, June 2025)."""
        return self.number >= 5556

    @property
    def keeps_layer_inputs_on_host(self) -> bool:
        """Gemma-3n's table of layer inputs stays on the host; before, it lay with the output (summer 2025)."""
        return self.number >= 6100

    @property
    def caches_encoders(self) -> bool:
        """Encoders had a KV cache that nothing read (until May 2025)."""
        return self.number < 5500

    @property
    def has_latents(self) -> bool:
        """One latent a token for MLA files that carry the keys (PR 12801, April 2025)."""
        return self.number >= 5139

    @property
    def has_streams(self) -> bool:
        """A stream of the cache for each sequence unless unified (PR 14363, July 2025)."""
        return self.number >= 5912

    @property
    def writes_rows(self) -> bool:
        """Caches are written by row indices (July 2025)."""
        return self.number >= 5912

    @property
    def fuses_gates(self) -> bool:
        """Gated activations are one operation (PR 14158, June 2025)."""
        return self.number >= 5775

    @property
    def has_auto_flash(self) -> bool:
        """Flash attention is on where the device has it, unless set (PR 15434, August 2025)."""
        return self.number >= 6325

    @property
    def has_prompt_cache(self) -> bool:
        """The server keeps finished prompts in host memory (October 2025)."""
        return self.number >= 6704

    @property
    def has_auto_slots(self) -> bool:
        """The server has four slots over one unified pool unless told (November 2025)."""
        return self.number >= 6920

    @property
    def pads_context_always(self) -> bool:
        """Contexts are multiples of 256 with or without flash attention (November 2025)."""
        return self.number >= 6920

    @property
    def has_breakdown(self) -> bool:
        """A table of memory by device is logged (PR 15860, September 2025)."""
        return self.number >= 6565

    @property
    def fits_in_common(self) -> bool:
        """The table and fitting are of the common library (2026, before the mark 2026-05)."""
        return self.number >= _MARKS["2026-05"]

    @property
    def has_fit(self) -> bool:
        """Context and placement follow from free memory, and the output layer is offloaded first (December 2025)."""
        return self.number >= 7405

    @property
    def plans_embeddings(self) -> bool:
        """A graph has room for embeddings as input beside tokens (PR 18550, January 2026)."""
        return self.number >= 7730

    @property
    def rotates_caches(self) -> bool:
        """Quantised caches are rotated by a Hadamard matrix (PR 21038, spring 2026)."""
        return self.number >= 8607

    @property
    def has_half_mask(self) -> bool:
        """With flash attention the mask is F16 from the start; before, a cast of it is made (after b8854)."""
        return self.number >= 9010

    @property
    def mixes_inputs(self) -> bool:
        """Tokens and embeddings in one batch (2026, before b11434)."""
        return self.number >= 11000

    @property
    def caps_outputs(self) -> bool:
        """The server plans for one row of logits a slot, not for a whole batch (2026, before b11434)."""
        return self.number >= 11000


NEWEST = LlamaBuild(11549)
OLDEST = LlamaBuild(2300)


def parse_version(text: str) -> LlamaBuild:
    """The build of "b5285", "5285", "b5285-abc123", or of a mark: 2025-02, 2026-05, newest.

    Raises FlagError for anything else and for builds before b2300.
    """
    plain = text.strip().lower()
    if plain in _MARKS:
        return LlamaBuild(_MARKS[plain])
    match = _BUILD.fullmatch(plain)
    if match is None:
        raise FlagError(
            f"llama.cpp version {text!r} is not a build such as b5285, or one of {', '.join(_MARKS)}",
            flag="engine",
            value=text,
        )
    build = LlamaBuild(int(match.group(1)))
    if build < OLDEST:
        raise FlagError(f"llama.cpp {text}: rules cover {OLDEST} and newer", flag="engine", value=text)
    return build


def rules_note(build: LlamaBuild) -> str | None:
    """What to know about a build newer than the sources that were read."""
    if build > NEWEST:
        return f"llama.cpp's sources were read up to {NEWEST}; {build} is planned by those rules"
    return None
