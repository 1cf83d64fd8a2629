"""The page: a local server that shows what the commands answer, and the same views as files of their own."""
