"""When ranks count as hung, and what is gathered of them before they are killed."""
