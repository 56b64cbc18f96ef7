"""Finds and runs the `highwater` program that the wheel installs."""

import os
import shutil
import subprocess
import sys
import sysconfig

# Of the program that has put this package into a running process.
given = None
_NAME = "highwater.exe" if os.name == "nt" else "highwater"


class HighwaterError(RuntimeError):
    """The `highwater` program is missing or reported an error."""


def path():
    """Returns the path of the program.

    Raises:
        HighwaterError: the program is not installed.
    """
    named = given or os.environ.get("HIGHWATER_BINARY")
    if named and os.path.isfile(named):
        # Of the program that put this package into the process.
        return named
    package = os.path.dirname(os.path.abspath(__file__))
    user_scheme = "nt_user" if os.name == "nt" else "posix_user"
    folders = [
        sysconfig.get_path("scripts"),
        sysconfig.get_path("scripts", user_scheme),
        # `pip install --target FOLDER` puts programs beside the packages.
        os.path.join(os.path.dirname(package), "bin"),
    ]
    for folder in folders:
        candidate = os.path.join(folder, _NAME) if folder else ""
        if os.path.isfile(candidate):
            return candidate
    found = shutil.which("highwater")
    if found is None:
        raise HighwaterError("the program 'highwater' is missing: run `pip install highwater-gpu`, or add it to PATH")
    return found


def run(arguments, *, text=True):
    """Runs the program and returns its standard output.

    Raises:
        HighwaterError: the program is missing, or failed. In the second case, the message is that of the program.
    """
    done = subprocess.run(
        [path(), *map(os.fspath, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=text
    )
    if done.returncode not in (0, 1):
        message = done.stderr if text else done.stderr.decode(errors="replace")
        raise HighwaterError(message.strip() or f"highwater {arguments[0]}: exit status {done.returncode}")
    return done.stdout


def replace_process(arguments):
    """Replaces this process by the program."""
    program = path()
    if os.name == "nt":
        sys.exit(subprocess.run([program, *arguments]).returncode)
    os.execv(program, [program, *arguments])


def version():
    """Returns the version of the program, such as `0.1.0`."""
    return run(["--version"]).split()[-1]
