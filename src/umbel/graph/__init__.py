"""The execution graph of a deployment: operators, stages, batch execution, explanation."""
