"""Traces of requests: spans by OpenTelemetry's conventions, made when a request has ended, sent by a thread of its own."""
