"""What can go wrong with a local cluster, as one small tree of exceptions.

Every message says what was wrong, where, and what to do about it.
"""


class LocalError(Exception):
    """Anything that the user of a local cluster can be told in one message, without a traceback."""


class MachineError(LocalError):
    """This machine cannot do what was asked for; another one, or any cluster given by KUBECONFIG, can."""


class BuildError(LocalError):
    """A binary could not be built from its Go module."""


class ClusterError(LocalError):
    """A cluster did not start, or is not there, or refused a request."""


class InUseError(ClusterError):
    """A cluster of that name is up already, or starting."""


class ChartError(LocalError):
    """Helm does not render the chart with these values; its words are the message."""
