"""What happened since the gateway began, as whole numbers that only grow."""

from __future__ import annotations

import msgspec


class Counters(msgspec.Struct, kw_only=True):
    connections: int = 0
    connections_refused: int = 0
    """Above the limit of open ones."""
    requests: int = 0
    bad_requests: int = 0
    """Refused for their form, before anybody was asked."""
    turned_away: int = 0
    """Without a key that is known, or to a path that does not pass."""
    admitted: int = 0
    queued: int = 0
    rejected: int = 0
    never_fit: int = 0
    unavailable: int = 0
    released: int = 0
    """Reservations and places in the queue given back."""
    policy_failures: int = 0
    """Times that the policy raised instead of answering."""
    clients_left: int = 0
    stalled_readers: int = 0
    upstream_connections: int = 0
    upstream_reused: int = 0
    upstream_retries: int = 0
    """Pooled connections that the engine had closed: sent again on a new one."""
    served_elsewhere: int = 0
    """Answers of another engine than the one that holds the reservation: Envoy tried again, or did not heed the choice."""
    upstream_failures: int = 0
    upstream_timeouts: int = 0
    truncated_answers: int = 0
    """Answers that broke off after they had begun."""
    engine_errors: int = 0
    engine_errors_in_streams: int = 0
    """Of these, inside a stream that began with 200."""
    engine_ran_out: int = 0
    """Errors of the engine, of any status, that said that its memory ran out."""
    unread_events: int = 0
