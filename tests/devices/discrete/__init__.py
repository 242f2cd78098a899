"""A discrete accelerator that a test simulates: two devices with memory of their own and queues that run late."""
