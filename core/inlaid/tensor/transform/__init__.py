"""Loop programs to loop programs: what happens to them after scheduling, and the rewriting that this rests on."""
