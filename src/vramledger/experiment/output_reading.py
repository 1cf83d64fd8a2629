"""Answers read with what they hold, for clients that go on from them: token ids where the engine tells them, else text."""

from __future__ import annotations

from collections.abc import Mapping

from vramledger.gateway.answer_reading import MOST_TOKENS, StreamReading

MOST_KEPT = 1 << 20
"""Tokens, and characters, of one answer."""


class OutputReading(StreamReading):
    """A stream of completions whose output is kept if `keeps`.

    Counts an event without text as output where it stands for a token: engines hold text back that is no whole character yet.
    """

    __slots__ = ("_keeps", "ids", "text")

    def __init__(self, *, keeps: bool) -> None:
        super().__init__()
        self._keeps = keeps
        self.ids: list[int] = []
        self.text: list[str] = []

    def take(self, value: Mapping[str, object], *, as_error: bool = False) -> None:
        before = self.output_events
        super().take(value, as_error=as_error)
        choices = value.get("choices")
        one = choices[0] if isinstance(choices, list) and choices else None
        if isinstance(one, dict):
            self._piece(one, one.get("token_ids"), one.get("text"))
            is_silent_token = one.get("text") == "" and one.get("finish_reason") is None
        else:
            self._piece(value, value.get("tokens"), value.get("content"))
            is_silent_token = value.get("content") == "" and value.get("stop") is False
            self._cached_by_timings(value.get("timings"))
        if is_silent_token and self.output_events == before:
            self.output_events += 1

    def _piece(self, where: Mapping[str, object], ids: object, text: object) -> None:
        if not self._keeps or where.get("index") not in (0, None):
            return
        if isinstance(ids, list) and len(self.ids) + len(ids) <= MOST_KEPT:
            self.ids += [one for one in ids if type(one) is int and 0 <= one < 2**31]
        if isinstance(text, str) and len(self.text) + len(text) <= MOST_KEPT:
            self.text.append(text)

    def _cached_by_timings(self, timings: object) -> None:
        """llama.cpp's own answers count cached tokens there."""
        cached = timings.get("cache_n") if isinstance(timings, dict) else None
        if isinstance(cached, int) and not isinstance(cached, bool) and 0 <= cached <= MOST_TOKENS:
            self.cached_prompt_tokens = cached
