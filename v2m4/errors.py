"""Every error a user can meet, each with a hint and an exit code."""


class V2M4Error(Exception):
    """One clear sentence, a hint on what to do, and the exit code of the command.

    ``message`` says what is wrong, ``hint`` what the user can do about it (may be empty).
    """

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class ConfigError(V2M4Error):
    """Wrong usage: an unknown option, a value out of range, a flag that does not fit."""

    exit_code = 2


class InputError(V2M4Error):
    """The clip, a mesh or a file the user gave cannot be used."""


class MissingBackend(V2M4Error):
    """An optional package is not installed."""

    exit_code = 3

    def __init__(self, name: str, install: str, licence: str = "") -> None:
        under = f" (licence: {licence})" if licence else ""
        super().__init__(f"{name} is not installed", f"install it with: {install}{under}")
        self.name = name


class StageError(V2M4Error):
    """A stage failed on one item; everything before it is kept.

    The hint says that the same command resumes, unless it would only fail the same way: what is wrong with an option
    or a file is still wrong then.
    """

    def __init__(self, stage: str, item: str, cause: BaseException) -> None:
        reason = cause.message if isinstance(cause, V2M4Error) else f"{type(cause).__name__}: {cause}"
        hint = cause.hint if isinstance(cause, V2M4Error) and cause.hint else ""
        resume = "what was finished is kept: run the same command again to resume"
        if isinstance(cause, (ConfigError, InputError)):
            resume = "what was finished is kept: put this right, then run again"
        super().__init__(
            f"stage {stage} failed at {item}: {reason}" if item else f"stage {stage} failed: {reason}",
            f"{hint}; {resume}" if hint else resume,
        )
        self.stage = stage
        self.item = item
        self.exit_code = cause.exit_code if isinstance(cause, V2M4Error) else 1


class RunLocked(V2M4Error):
    """Another process works in the same run directory."""
