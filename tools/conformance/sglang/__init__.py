"""SGLang's own budget code, run on stand-ins for its runtime, against the rules here."""
