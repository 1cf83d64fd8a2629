"""What several gateways in front of the same engines share: the pool's blocks and places, without spending any twice."""
