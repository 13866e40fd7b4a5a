"""What stops a deployment: each is one sentence that says what to do, printed without a traceback."""


class DeployError(Exception):
    """The command can't go on. The message is a sentence for the person at the terminal."""


class NameClash(DeployError):
    """A name that the deployment needs is taken by something that it did not make."""


class MissingPermission(DeployError):
    """AWS refuses an action to these credentials."""


class EndpointFailed(DeployError):
    """The endpoint did not come up, or what it does takes longer than it may."""


class RolledBack(DeployError):
    """An update ended with the old fleet: SageMaker went back to it."""
