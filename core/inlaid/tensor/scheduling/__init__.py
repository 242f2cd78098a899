"""How a target schedules kernels: the interface of schedule rules, kernel traces, predicted work, dot-product instructions."""
