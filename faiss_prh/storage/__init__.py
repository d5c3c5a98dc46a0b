"""An index as one file."""
