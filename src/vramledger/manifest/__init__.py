"""The release artifact: one file for a model revision, an engine revision and a plan, with what was measured of it.

`document` has its types, `build` makes one from values, `reader` reads one and checks it, `quantities` and `difference`
compare two, `audit` goes through the release checklist.
"""
