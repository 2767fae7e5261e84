"""Private synthetic tables: our sketch beside AIM and MST."""
