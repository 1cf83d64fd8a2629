"""What the gateway tells in Prometheus' format: counted as whole numbers while it serves, put into words only when it is asked."""
