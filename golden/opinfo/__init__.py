"""The op table: sample families and the machinery that runs them (see golden/README.md)."""
