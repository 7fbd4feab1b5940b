from tests.cli.conftest import cli, in_a_pipe  # noqa: F401
