"""Why an edit of a YAML text is not made."""


class CannotEdit(ValueError):
    """The text cannot be edited without touching more than was asked; the message is a reason."""
