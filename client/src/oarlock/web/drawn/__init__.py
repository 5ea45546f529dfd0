"""What is seen, as markup: pure functions from what is known to Html, by the report's own. No requests, no clock."""
