"""How this node's GPUs are: reading NVML, judging what it says, telling the agent. Without torch, and changing nothing."""
