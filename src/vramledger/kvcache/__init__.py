"""What a request's cache takes: by format, by length, by the way memory is handed out."""
