"""The admission policy in front of live engines: their pools, what they say of the moment, and which of them a request goes to."""
