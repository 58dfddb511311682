"""What a broken rule raises."""


class Violation(Exception):
    """A property that must always hold did not."""
