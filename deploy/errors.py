"""What stops a deployment: each is one sentence that says what to do, printed without a traceback."""


class DeployError(Exception):
    """The command can't go on. The message is a sentence for the person at the terminal."""


class NameClash(DeployError):
    """A name that the deployment needs is taken by something that it did not make."""


class MissingPermission(DeployError):
    """AWS refuses an action to these credentials."""
