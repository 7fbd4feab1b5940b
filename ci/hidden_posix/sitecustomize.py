"""Hides from Python what Windows does not have, in every process whose PYTHONPATH has this folder.

A simulation: file names, line ends and signals stay those of Linux. Libraries that choose by
``sys.platform`` what they use, and need it on Linux, still see it; filelock uses its soft locks.
"""

import multiprocessing.context
import os
import sys

# Importing one of these is an ImportError; transformers itself needs ``resource`` on Linux.
for module in ("fcntl", "grp", "pwd", "resource", "termios", "transformers"):
    sys.modules[module] = None
HIDDEN = {}
for name in (
    *("fork", "forkpty", "register_at_fork", "sched_getaffinity", "mkfifo", "fchmod", "chown"),
    *("getuid", "geteuid", "getgid", "getegid", "O_NOFOLLOW", "O_NONBLOCK", "O_TMPFILE"),
):
    HIDDEN[name] = os.__dict__.pop(name)


def hidden(name):
    """Return what is hidden to the libraries that need it, which read it in their own frame."""
    package = sys._getframe(1).f_globals.get("__name__", "").partition(".")[0]
    if name in HIDDEN and package in ("platformdirs", "torch", "_pytest", "execnet", "xdist"):
        return HIDDEN[name]
    raise AttributeError(f"module 'os' has no attribute {name!r}")


os.__getattr__ = hidden
os.supports_dir_fd.clear()
os.supports_follow_symlinks.discard(os.chmod)


def without_folders(function):
    """Return a function that takes no descriptors of folders, as on Windows."""

    def call(*arguments, **options):
        if any(options.get(name) is not None for name in ("dir_fd", "src_dir_fd", "dst_dir_fd")):
            raise NotImplementedError("dir_fd unavailable on this platform")
        return function(*arguments, **options)

    call.__module__, call.__qualname__ = "os", function.__name__  # for pickle
    return call


for name in ("link", "mkdir", "open", "rename", "replace", "rmdir", "unlink"):
    setattr(os, name, without_folders(getattr(os, name)))


def hide_proc(event, arguments):
    """Fail to open and list what is below /proc."""
    if event in ("open", "os.listdir", "os.scandir") and str(arguments[0]).startswith("/proc"):
        raise FileNotFoundError(2, "hidden", arguments[0])


sys.addaudithook(hide_proc)

spawn = multiprocessing.context._concrete_contexts["spawn"]
multiprocessing.context._concrete_contexts = {"spawn": spawn}
multiprocessing.context._default_context._default_context = spawn
