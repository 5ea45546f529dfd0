"""What one pass sees and what it wants, as plain data: observation, plan, and every reason. Imports nothing above."""
