"""One module a trace format; each makes pieces of requests in the file's order."""
