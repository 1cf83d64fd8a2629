"""What traces call the fields of a request.

Names are compared without case, blanks, dots, dashes and underscores. A dotted name is a path into an object of JSON lines:
what OpenAI's responses, LiteLLM's logging payloads and spend logs, and common gateways write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

FIELD_NAMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "arrival": (
            "arrival_ns", "arrival_us", "arrival_ms", "arrival_s", "arrival_time_ns", "arrival_time_us",
            "arrival_time_ms", "arrival_time_s", "arrived_at", "arrival_time", "arrival", "timestamp_ns", "timestamp_us",
            "timestamp_ms", "timestamp_s", "timestamp", "start_time", "request_time", "request_created_at", "sent_at",
            "created", "created_at", "response.created", "response.body.created", "time", "ts", "datetime",
        ),
        "prompt_tokens": (
            "prompt_tokens", "input_tokens", "context_tokens", "request_tokens", "input_length", "prompt_length",
            "input_len", "prompt_len", "input_toks", "num_prompt_tokens", "num_input_tokens", "num_prefill_tokens",
            "tokens_prompt", "isl", "usage.prompt_tokens", "usage.input_tokens", "usage.input", "response.usage.prompt_tokens",
            "response.usage.input_tokens", "response.body.usage.prompt_tokens", "response.body.usage.input_tokens",
            "metadata.usage_object.prompt_tokens", "prompt", "input",
        ),
        "output_tokens": (
            "output_tokens", "completion_tokens", "generated_tokens", "response_tokens", "output_length",
            "completion_length", "output_len", "output_toks", "num_output_tokens", "num_generated_tokens",
            "num_decode_tokens", "tokens_completion", "osl", "usage.completion_tokens", "usage.output_tokens", "usage.output",
            "response.usage.completion_tokens", "response.usage.output_tokens", "response.body.usage.completion_tokens",
            "response.body.usage.output_tokens", "metadata.usage_object.completion_tokens", "output", "completion",
        ),
        "max_output_tokens": (
            "max_output_tokens", "max_tokens", "max_completion_tokens", "max_new_tokens", "request.max_completion_tokens",
            "request.max_tokens", "model_parameters.max_tokens", "optional_params.max_tokens",
        ),
        "end": ("end_time", "ended_at", "finished_at", "completed_at"),
        "latency": (
            "latency_ns", "latency_us", "latency_ms", "latency_s", "duration_ns", "duration_us", "duration_ms", "duration_s",
            "elapsed_time", "elapsed", "duration", "latency", "e2e_latency",
        ),
        "tenant": (
            "tenant", "tenant_id", "team_id", "metadata.user_api_key_team_id", "organization_id", "org_id",
            "metadata.user_api_key_alias", "client_id", "client", "end_user", "user_id", "user",
        ),
        "conversation": (
            "conversation", "conversation_id", "session_id", "chat_session_id", "thread_id", "metadata.session_id",
        ),
        "request_id": ("request_id", "call_id", "chat_id", "rid", "response_id", "id"),
        "parent_id": ("parent_id", "parent_request_id", "parent_chat_id", "previous_response_id"),
        "pause": ("pause_ns", "pause_us", "pause_ms", "pause_s", "think_time_ms", "think_time_s", "think_time", "pause"),
        "model": ("model", "model_name", "model_id", "model_group"),
        "adapter": ("adapter", "lora", "lora_name", "adapter_id"),
        "branches": ("branches", "num_branches"),
        "cancel": ("cancel_ns", "cancel_us", "cancel_ms", "cancel_s", "cancel_after_ms", "cancel_after_s"),
        "first_token_deadline": (
            "first_token_deadline_ns", "first_token_deadline_ms", "first_token_deadline_s", "ttft_deadline_ms",
            "ttft_deadline_s",
        ),
        "deadline": ("deadline_ns", "deadline_us", "deadline_ms", "deadline_s"),
        "priority": ("priority",),
        "blocks": ("blocks", "block_ids", "hash_ids", "prefix_blocks", "block_hashes"),
        "block_tokens": ("block_tokens",),
    }
)  # fmt: skip
TIME_FIELDS = ("arrival", "end", "latency", "pause", "cancel", "first_token_deadline", "deadline")


def plain(name: str) -> str:
    """A name as it is compared."""
    return "".join(char for char in name.lower() if char.isalnum())


def unit_in(name: str) -> str | None:
    """The unit that a column's name ends in, None where it says none."""
    tail = (
        name.rpartition(".")[2].lower().replace(" ", "_").replace("-", "_").rpartition("_")[2].strip("()[]")
    )
    if tail in ("seconds", "sec", "secs"):
        return "s"
    return tail if tail in ("s", "ms", "us", "ns") and tail != plain(name) else None


def find_columns(there: Sequence[str], *, given: Mapping[str, str]) -> dict[str, str]:
    """Our fields and which of the columns `there` has each: the `given` one, else the first that is known by name.

    A given name that is not there is kept, so that the caller can tell of it.
    """
    by_name = {plain(name): name for name in reversed(there)}
    found = dict(given)
    for field, names in FIELD_NAMES.items():
        if field in found:
            continue
        for name in names:
            column = by_name.get(plain(name))
            if column is not None and column not in found.values():
                found[field] = column
                break
    return found
