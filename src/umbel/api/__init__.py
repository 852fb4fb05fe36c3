"""What users write: decorators and fluent objects that build the plan."""
