"""Many questions put to planning at once: engines side by side, grids as tables, what holds and what it costs.

A `Question` is one point in the terms that every engine shares; `terms` says how each engine spells them. Everything
here is pure except the runners, which spread a grid over processes or a Ray cluster and give the same rows.
"""
