"""What every part stands on: errors, the channel to the agent, atomic writes, processes and clocks. Imports nothing above."""
