"""What a checkpoint's headers say, held against what the config describes.

`reconcile` corrects stored formats from a full table, `compare_names` holds an index's names against the
description, `describe_headers` says what can be said without any description.
"""

from vramledger.models.headers.names_only import compare_names
from vramledger.models.headers.reconcile import Reconciled, reconcile
from vramledger.models.headers.summary import HeaderSummary, describe_headers, summarise

__all__ = ["HeaderSummary", "Reconciled", "compare_names", "describe_headers", "reconcile", "summarise"]
