"""The definition API: decorators and fluent objects that build the plan."""
