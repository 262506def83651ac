"""The answer "ask a person" of whatever reads a command."""


class Objection(Exception):  # noqa: N818 (it is an answer, not an error)
    """Why a text is not known to be harmless: `rule` for the audit log, the message for a person."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule = rule
