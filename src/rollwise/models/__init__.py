"""Models: loading them, encoding prompts for them, and the built-in one."""
