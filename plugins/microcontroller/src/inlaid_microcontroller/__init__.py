"""Models for microcontrollers: loop programs to readable C99, one arena, no interpreter."""
