"""Why a rank is slow: looked up once that is certain, by the agent of its own node."""
