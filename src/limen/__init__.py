"""Serve MCP tools to callers you did not write."""
