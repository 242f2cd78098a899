"""Models written as lines of text for Inlaid."""
