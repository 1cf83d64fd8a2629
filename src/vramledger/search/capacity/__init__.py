"""The largest load that an instance serves well, what binds there, and how much room is left."""
