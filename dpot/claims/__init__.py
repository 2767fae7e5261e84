"""The papers' claims as executable checks: one module per paper, each with its list CLAIMS."""
