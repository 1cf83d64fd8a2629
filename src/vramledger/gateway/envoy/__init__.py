"""The same admission as an external processor of Envoy: gRPC instead of a proxy's place, one desk and one policy behind both."""
