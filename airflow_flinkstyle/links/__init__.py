"""Links shown on a task's page."""
