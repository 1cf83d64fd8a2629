"""Hostile HTTP and JSON at the gateway's door, before engines whose HTTP is read by other parsers than the gateway's."""
