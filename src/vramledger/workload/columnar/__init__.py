"""Traces read and written by the column. Everything here imports numpy or pyarrow: import it inside functions."""
